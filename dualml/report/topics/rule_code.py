"""The source of every optimizer of this run, in the reference and in each framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.optim import RULES
from dualml.report import ranks
from dualml.report.blocks import Block, Code, Notice, Row, Section
from dualml.report.code import HOMES, Listing, listings, shared
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Each rule, then what all of them share."""
    present = {run.framework(b) for b in run.backends}
    # The reference is always shown: it is the rule as the paper writes it.
    frameworks = [f for f in HOMES if f == "numpy" or f in present]
    rules = [run.arms[arm].get("optimizer") or {} for arm in ranks.training(run)]
    for name in dict.fromkeys(str(rule.get("name")) for rule in rules):
        if name in RULES:
            yield Section("", name, list(side_by_side(listings(name, frameworks), words)))
    if rules:
        yield Section("", words("page.shared"), list(side_by_side(shared(frameworks), words)))


def side_by_side(listings: Sequence[Listing], words: Words) -> Iterator[Block]:
    """The frameworks beside each other; the reference has a row of its own."""
    alone = [part for part in listings if part.framework in ("", "numpy")]
    yield from (_block(part, words) for part in alone)
    others = [_block(part, words) for part in listings if part not in alone]
    if others:
        yield Row(others)


def _block(listing: Listing, words: Words) -> Block:
    if not listing.text:
        return Notice(words("intro.missing_source"))
    return Code(listing.text, listing.path, listing.framework)


TOPIC = Topic("rule_code", 90, evidence, part="code")
