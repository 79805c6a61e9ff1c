"""Requirements on checkpoints of a data parallel training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.checkpoint.folder import (
    ERRORS,
    LATE_UPDATES,
    RANKS,
    UPDATES,
    FolderRequirement,
    make_call,
)
from dualml.course.checkpoint.inputs import training_inputs
from dualml.course.checkpoint.rules import train_and_resume
from dualml.course.computed import ComputedRequirement, Draw, is_far, rounding_tolerance
from dualml.course.differences import first_difference
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.mistakes import mistake_groups

MODEL, OPTIMIZER, RANDOM, PROGRESS, RESUMED = mistake_groups(
    "checkpoint", "model", "optimizer", "random", "progress", "resumed"
)
#: Requirement's aspect → beginnings of the results that count.
ASPECTS: dict[str, tuple[str, ...]] = {
    "model": ("loaded/weight", "loaded/bias", "loaded/shift"),
    "optimizer": ("loaded/momentum", "loaded/rate"),
    "random": ("loaded/draws",),
    "progress": ("progress/",),
    "resume": tuple(f"{UPDATES + n}/" for n in range(1, LATE_UPDATES + 1)),
    "undisturbed": ("saved/", "whole/"),
}


@dataclass
class CheckpointRequirement(ComputedRequirement):
    """Requirement on what a load restores.

    Attributes:
        aspect: results that count, a key of `ASPECTS`.
    """

    name: str
    aspect: str
    flags: Sequence[str] = ()
    places: Sequence[str] = ("rank=!0", "rank=0", "rank=-1")
    target: str = "Checkpoint"
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call on `RANKS` ranks."""
        return [make_call(draw, self.target, RANKS)]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count in the dtype ``number``, with the typical mistakes
        named in ``flags``."""
        return [
            {key: a for key, a in own.items() if key.startswith(ASPECTS[self.aspect])}
            for own in train_and_resume(call.options, call.arrays, flags, number)
        ]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the float32 rule's own error, with a margin; 0 for whole numbers."""
        exact, single = (self.compute(call, flags, n) for n in (np.float64, np.float32))
        most = rounding_tolerance(exact, single, lambda key: "draws" not in key)
        nothing = np.asarray(0.0)
        return [
            {key: nothing if a.dtype.kind == "i" else most for key, a in own.items()}
            for own in exact
        ]

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether an answer is far from what these mistakes give, which saves the
        computation of the tolerance for most of them."""
        return is_far(answer.arrays, self.expected(call, flags))

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference from the rule, without a mistake; else, with the mistake
        ``values_rounded``, that of the first array that differs in a bit: the loaded state from the
        saved one, or the resumed training from the one that went on. None if there is neither."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        if wrong is not None:
            return wrong, ()
        for rank, arrays in enumerate(answer.arrays):
            for key in arrays:
                twin = twin_of(key)
                if twin and key.startswith(ASPECTS[self.aspect]):
                    pair = [{key: np.asarray(arrays[key])}], [{key: np.asarray(arrays[twin])}]
                    off = first_difference(*pair, [{key: np.asarray(0.0)}])
                    if off is not None:
                        lost = Difference(rank, key, off.index, off.value, off.expected)
                        return lost, ("values_rounded",)
        return None

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers from which the wrong one is computed (`training_inputs`)."""
        return training_inputs(call.options, call.arrays, difference)


def twin_of(key: str) -> str:
    """Return the key of the value to which that of ``key`` has to be equal bit for bit:
    ``loaded/NAME`` → ``saved/NAME``, ``7/NAME`` → ``whole/7/NAME``; empty for other keys."""
    kind, _, name = key.partition("/")
    if kind == "loaded":
        return f"saved/{name}"
    return f"whole/{key}" if kind.isdigit() else ""


REQUIREMENTS: Sequence[Requirement] = (
    FolderRequirement("checkpoint.writer", False),
    CheckpointRequirement("checkpoint.model", "model", MODEL),
    CheckpointRequirement("checkpoint.optimizer", "optimizer", OPTIMIZER),
    CheckpointRequirement("checkpoint.random", "random", RANDOM),
    CheckpointRequirement("checkpoint.progress", "progress", PROGRESS),
    CheckpointRequirement("checkpoint.resume", "resume", RESUMED),
    CheckpointRequirement("checkpoint.undisturbed", "undisturbed"),
    FolderRequirement("checkpoint.atomic", True),
)
