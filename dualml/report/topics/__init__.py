"""The topics of a page: each file of this folder is one complete topic.

A topic reads a run and returns the blocks with the evidence and the sentences computed from it.
Most are data (`table_section`): the records that they read, the columns of their table, their
figures, their sentences. To add one, add a file that defines ``TOPIC`` (or several as ``TOPICS``)
and its messages (``words/LANG/NAME.toml``); nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block
from dualml.report.columns import Columns, tabulate
from dualml.report.notes import Notes

R = TypeVar("R")
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
        sentences: adds the sentences that are computed from the numbers to `Notes`.
        anchor: evidence that the sentences link to, ``table-NAME`` or ``figure-NAME``.
        priority: how directly the topic answers the question of a lab: the one with the highest
            value provides the first figure and the first table of the first screen.
        group: ``results`` for a section of its own; else the reference section it is folded into.
        when: whether the topic applies to a run; it is skipped for others.
        messages: the messages of the sentences are ``say.MESSAGES.*``; the name if empty.
    """

    name: str
    order: int
    evidence: Callable[[RunData, Messages], Iterable[Block]]
    sentences: Callable[[Notes, RunData], object] = lambda notes, run: None
    anchor: str = ""
    priority: Callable[[RunData], int] = lambda run: 0
    group: Part = "results"
    when: Callable[[RunData], object] = lambda run: True
    messages: str = ""

    def findings(self, run: RunData, words: Messages) -> Notes:
        """Return the sentences of a run, each with the anchor of its evidence."""
        notes = Notes(words, self.messages or self.name, self.anchor)
        self.sentences(notes, run)
        return notes


def table_section(
    name: str,
    order: int,
    *,
    reads: Callable[[RunData], Sequence[R]],
    columns: Callable[[RunData, Messages, Sequence[R]], Columns[R]],
    figures: Callable[[RunData, Messages, Sequence[R]], Iterable[Block]] = lambda *_: (),
    below: Callable[[RunData, Messages, Sequence[R]], Iterable[Block]] = lambda *_: (),
    findings: Callable[[Notes, RunData, Sequence[R]], object] = lambda *_: None,
    keep: Callable[[R], object] = lambda _: True,
    table: str = "",
    anchor: str = "",
    values: Callable[[RunData, Sequence[R]], Mapping[str, Any]] = lambda *_: {},
    **fields: Any,
) -> ReportSection:
    """Return a topic with one table: its figures, then the table with a row per record.

    Args:
        reads: the records of a run, e.g. one per arm and backend; the other functions get them.
        columns: column → function of a record (`Columns`).
        figures: figures and notices above the table; ``below``: blocks below it.
        findings: adds the sentences to the `Notes`.
        keep: whether a record has a row.
        table: name of the table and of its caption, ``table.NAME``; that of the topic if empty.
        anchor: evidence that the sentences link to; the table if empty.
        values: values of the caption.
        fields: ``priority``, ``group``, ``when`` and ``messages`` of `ReportSection`.
    """

    def evidence(run: RunData, words: Messages) -> Iterator[Block]:
        records = reads(run)
        yield from figures(run, words, records)
        read, known = columns(run, words, records), values(run, records)
        yield from tabulate(words, table or name, filter(keep, records), read, **known)
        yield from below(run, words, records)

    def sentences(notes: Notes, run: RunData) -> None:
        findings(notes, run, reads(run))

    anchor = anchor or f"table-{table or name}"
    return ReportSection(name, order, evidence, sentences, anchor, **fields)


@cache
def topics() -> tuple[ReportSection, ...]:
    """Return every topic of this folder in reading order."""
    every: list[ReportSection] = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        every += module.TOPICS if hasattr(module, "TOPICS") else [module.TOPIC]
    return tuple(sorted(every, key=lambda topic: (topic.order, topic.name)))
