"""What a page tells, topic by topic: each file of this folder holds one, whole.

A topic reads a run and gives the blocks that show the evidence and the sentences computed from it.
A new one is a file with a ``TOPIC`` in it (or several, as ``TOPICS``) and its words
(``words/LANG/NAME.toml``); nothing else knows it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from dualml.report.blocks import Block, Item
from dualml.store.run import Run
from dualml.words import Words

Part: TypeAlias = Literal["results", "principle", "code", "settings"]
#: Sections at the end of the page whose topics are folded, in their order.
REFERENCE: tuple[Part, ...] = ("principle", "code", "settings")


@dataclass(frozen=True)
class Topic:
    """One topic of the page; its title is the text ``topic.NAME``, its introduction
    ``intro.NAME``.

    Args:
        name: the anchor, in kebab or snake case.
        place: where it stands: topics are shown by this number, then by name.
        evidence: figures, tables, cards and notices; nothing where the run has none of it.
        findings: sentences computed from the numbers, each with the anchor of its evidence.
        leads: how strongly the topic answers a lab's question when it has evidence: the one that
            leads most gives the first screen its figure (its first one) and table (likewise).
        part: ``results`` for a section of its own; else the reference section it is a fold of.
        when: whether a run is one the topic is about; of others it says nothing.
    """

    name: str
    place: int
    evidence: Callable[[Run, Words], Iterable[Block]]
    findings: Callable[[Run, Words], Iterable[Item]] = lambda run, words: ()
    leads: Callable[[Run], int] = lambda run: 0
    part: Part = "results"
    when: Callable[[Run], object] = lambda run: True


@cache
def topics() -> tuple[Topic, ...]:
    """Every topic of this folder in reading order."""
    every: list[Topic] = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        every += module.TOPICS if hasattr(module, "TOPICS") else [module.TOPIC]
    return tuple(sorted(every, key=lambda topic: (topic.place, topic.name)))
