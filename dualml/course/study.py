"""Studies: figures and tables of a lab's report about a student's own code, beside the verdicts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dualml.common.words import Messages
from dualml.course.exercise import Answer, ExerciseCall, ExerciseFile
from dualml.report.blocks import Block

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


def successful_answers(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Return the entries whose answer has no error."""
    return {name: answer for name, answer in answers.items() if answer.trouble is None}
