"""The principles of sharding (ZeRO) and recomputation, and their code."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Code
from dualml.report.cards import method_cards
from dualml.report.code import code_sections, read_listings
from dualml.report.topics import ReportSection


def zero_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per stage of ZeRO that an arm uses, and one for the all-reduce variant."""
    used = ((arm, _stage_key(run, arm)) for arm in ranks.training_arms(run))
    return method_cards(words, "shared", used, "shared.{}.name", "shared.{}.does")


def _stage_key(run: RunData, arm: str) -> str:
    """Return the name in the section ``shared`` of `cards.read_formulas` for an arm's sharding; a
    name that the section does not have for an arm that shards nothing."""
    s = run.settings[arm]
    return f"zero{s.zero}" if s.zero_reduce == "reduce_scatter" else s.zero_reduce


def recompute_cards(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per kind of activation recomputation that an arm uses."""
    used = ((arm, str(run.settings[arm].recompute)) for arm in ranks.training_arms(run))
    return method_cards(words, "again", used, "again.{}.name", "again.{}.does")


def code(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the code of sharding (ZeRO) and of recomputation, each only if an arm of the run uses
    it."""
    parts = dict[str, list[Code]]()
    if any(run.settings[arm].zero for arm in ranks.training_arms(run)):
        parts["shared"] = read_listings("shared")
    if any(run.settings[arm].recompute != "none" for arm in ranks.training_arms(run)):
        present = {run.framework(b) for b in run.backends}
        parts["again"] = read_listings("again", present)
    return code_sections(parts, words)


TOPICS = (
    ReportSection("shared", 25, zero_cards, group="principle"),
    ReportSection("again", 26, recompute_cards, group="principle"),
    ReportSection("memory_code", 20, code, group="code"),
)
