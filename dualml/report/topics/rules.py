"""The update rules of this run: formulas with the options they ran with, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report import ranks
from dualml.report.blocks import Block, Card, Formula, Prose
from dualml.report.formulas import Principle, principle
from dualml.report.listing import several
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """One card for each optimizer and set of options that changes its formulas."""
    seen: dict[tuple[str, Principle | None], list[str]] = {}
    for arm in ranks.training(run):
        optimizer = run.arms[arm].get("optimizer") or {}
        if optimizer.get("name"):
            seen.setdefault((str(optimizer["name"]), principle(optimizer)), []).append(arm)
    for (name, known), arms in seen.items():
        yield Card(name, list(_card(run, words, name, known, arms)), code=True)
    if seen:
        yield Prose(words("symbols.all"), small=True)


def _card(
    run: Run, words: Words, name: str, known: Principle | None, arms: list[str]
) -> Iterator[Block]:
    if known is None:
        yield Prose(words("intro.unknown_rule", name=name))
    else:
        yield from map(Formula, known.formulas)
        yield Prose(words.either(f"symbols.{_variant(run, name, arms)}", ""))
    shown = several(arms, words) if ranks.distributed(run) else arms
    yield Prose(words("page.arms") + words("list.colon") + ", ".join(shown), small=True)
    if known is not None:
        yield Prose(words("page.source") + words("list.colon") + known.source, small=True)


def _variant(run: Run, name: str, arms: list[str]) -> str:
    """The rule's name, or that of the variant its options make of it."""
    if name == "sgd" and not any(run.arms[arm].get("batch_size", 1) for arm in arms):
        return "gd"
    optimizer = run.arms[arms[0]]["optimizer"]
    uncorrected = name == "adam" and optimizer.get("bias_correction") is False
    return "adam_uncorrected" if uncorrected else name


TOPIC = Topic("rules", 10, evidence, part="principle")
