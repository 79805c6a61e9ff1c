"""The principle of split models: where the model is cut, what is sent, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Prose
from dualml.report.cards import CardFooter, make_card, method_cards, read_formulas
from dualml.report.splits.arms import Splits, schedule_name
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a card per way in which this run splits a model, then one per schedule."""
    splits = Splits(run)
    ways = ((arm.name, way) for arm in splits for way in arm.split_kinds)
    title, does = "splits.way.{}", "splitting.does.{}"
    yield from method_cards(words, "split", ways, title, does, most=8)
    for name, card in read_formulas()["schedule"].items():
        used = [arm.name for arm in splits.pipelines if arm.schedule == name]
        if used:
            title = words("splitting.schedule", name=schedule_name(name, words))
            text = words(f"splitting.ordered.{name}")
            footer = CardFooter(used, card.get("source", ""), most=8)
            yield make_card(words, title, card["formulas"], text, footer)
    if splits:
        yield Prose(words("splitting.symbols"), small=True)


TOPIC = ReportSection("splitting", 50, evidence, group="principle")
