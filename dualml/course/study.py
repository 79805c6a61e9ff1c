"""Studies: figures and tables of a lab's report about a student's own code, beside the verdicts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from dualml.common.words import Messages
from dualml.course.exercise import Answer, ExerciseCall, ExerciseFile
from dualml.report.blocks import Block, Cell
from dualml.report.figure import LegendEntry

#: Function that runs calls on a student's file.
Run = Callable[[ExerciseFile, Sequence[ExerciseCall]], list[Answer]]


@dataclass(frozen=True)
class Study:
    """Figures and tables of one lab, and the questions that follow from their numbers."""

    blocks: Sequence[Block] = ()
    questions: Sequence[str] = field(default_factory=tuple)


def study(lab: str, files: Sequence[ExerciseFile], run: Run, words: Messages) -> Study:
    """Make the study of a lab by ``dualml.course.LAB.study.study(files, run, words)``; empty if
    there is no such module."""
    try:
        module = importlib.import_module(f"dualml.course.{lab}.study")
    except ModuleNotFoundError as error:
        if error.name != f"dualml.course.{lab}.study":
            raise
        return Study()
    made: Study = module.study(files, run, words)
    return made


def equality_cell(equal: bool, words: Messages) -> Cell:
    """Return the cell that says whether a student's numbers equal the rule's."""
    return Cell(words(f"verdict.{'equal' if equal else 'different'}"), "good" if equal else "bad")


def curves_legend(backends: Collection[str], words: Messages) -> Iterator[LegendEntry]:
    """Yield the legend of the line styles: those of the ``backends``, and that of the rule."""
    for backend, stroke in (("torch", "wide"), ("mindspore", "dashes")):
        if backend in backends:
            yield LegendEntry("backend", backend, stroke=stroke)
    yield LegendEntry("series", "rule", label=words("study.rule"), stroke="hair")
