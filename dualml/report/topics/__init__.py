"""The topics of a page: each file of this folder is one complete topic.

A topic reads a run and returns the blocks with the evidence and the sentences computed from it. To
add one, add a file that defines ``TOPIC`` (or several as ``TOPICS``) and its messages
(``words/LANG/NAME.toml``); nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Item

Part: TypeAlias = Literal["results", "principle", "code", "settings"]
#: Reference sections at the end of the page, in order; their topics are folded.
REFERENCE: tuple[Part, ...] = ("principle", "code", "settings")


@dataclass(frozen=True)
class ReportSection:
    """One topic of the page; its title is the message ``topic.NAME``, its introduction
    ``intro.NAME``.

    Args:
        name: the anchor, in kebab or snake case.
        order: position on the page: topics are sorted by this number, then by name.
        evidence: figures, tables, cards and notices; empty if the run has none of it.
        findings: sentences computed from the numbers, each with the anchor of its evidence.
        priority: how directly the topic answers the question of a lab: the one with the highest
            value provides the first figure and the first table of the first screen.
        group: ``results`` for a section of its own; else the reference section it is folded into.
        when: whether the topic applies to a run; it is skipped for others.
    """

    name: str
    order: int
    evidence: Callable[[RunData, Messages], Iterable[Block]]
    findings: Callable[[RunData, Messages], Iterable[Item]] = lambda run, words: ()
    priority: Callable[[RunData], int] = lambda run: 0
    group: Part = "results"
    when: Callable[[RunData], object] = lambda run: True


@cache
def topics() -> tuple[ReportSection, ...]:
    """Return every topic of this folder in reading order."""
    every: list[ReportSection] = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        every += module.TOPICS if hasattr(module, "TOPICS") else [module.TOPIC]
    return tuple(sorted(every, key=lambda topic: (topic.order, topic.name)))
