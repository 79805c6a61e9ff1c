"""Calls of a student's checkpoints, and requirements on what a save does in the folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import Draw, draw_array, draw_lr, round_for_display
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

RANKS, FEATURES, OUTPUTS, SAMPLES, BATCH = 3, 3, 2, 7, 4
#: Updates before the first save and before the second, after it, and in an epoch.
EARLY_UPDATES, UPDATES, LATE_UPDATES, EPOCH = 2, 5, 4, 3
#: Errors of collectives that only some ranks call, or that ranks call in another order; the judge's
#: own collective, which follows a save, is an all-gather of three dimensions.
ERRORS = (
    (r"all_gather int64 \(1, 1, 1\).*: barrier", "barrier_one_sided"),
    (r": barrier.*all_gather int64 \(1, 1, 1\)", "barrier_one_sided"),
    (r"ranks disagree", "collective_one_sided"),
    (r"waited for (all_gather|gather|broadcast|all_reduce)", "collective_one_sided"),
    (r"cross-device link", "temporary_elsewhere"),
    (r"FileNotFoundError", "file_name_changed"),
)


def checkpoint_options(draw: Draw, ranks: int, full: bool) -> dict[str, Any]:
    """Return the options of a call on ``ranks`` ranks, with random hyperparameters and seeds;
    ``full`` says whether the disk is full at the second save."""
    seeds = [int(s) for s in draw.choice(2**20, size=2 * ranks, replace=False)]
    return {
        "comm": True,
        "hyper": {
            "lr": draw_lr(draw),
            "momentum": round_for_display(draw.uniform(0.6, 0.9)),
            "decay": round_for_display(draw.uniform(0.3, 0.7)),
        },
        "seeds": seeds[:ranks],
        "fresh_seeds": seeds[ranks:],
        "early": EARLY_UPDATES,
        "updates": UPDATES,
        "more": LATE_UPDATES,
        "epoch": EPOCH,
        "batch": BATCH,
        "full": full,
    }


def make_call(draw: Draw, target: str, ranks: int, full: bool = False) -> ExerciseCall:
    """Make a call on ``ranks`` ranks, each with samples of its own; with ``full`` the disk is full
    at the second save."""
    options = checkpoint_options(draw, ranks, full)
    start = draw_weights(draw)
    arrays = [
        {
            **{f"start/{n}": a for n, a in start.items()},
            **{f"fresh/{n}": a for n, a in draw_weights(draw).items()},
            "x": draw_array(draw, SAMPLES, FEATURES),
            "y": draw_array(draw, SAMPLES, OUTPUTS),
        }
        for _ in range(ranks)
    ]
    return ExerciseCall("checkpoint", target, options, arrays)


def draw_weights(draw: Draw) -> dict[str, Any]:
    """Draw the parameters and the buffer of a model."""
    return {
        "weight": draw_array(draw, FEATURES, OUTPUTS),
        "bias": draw_array(draw, OUTPUTS),
        "shift": draw_array(draw, FEATURES),
    }


#: Fact of the rank that saves → the right value and the mistake that another value shows.
RENAME_FACTS: dict[str, tuple[int, str]] = {
    "removed": (0, "old_removed_first"),
    "renamed": (1, "temporary_copied"),
    "beside": (1, "temporary_elsewhere"),
    "left": (0, "second_file"),
}


@dataclass
class FolderRequirement(Requirement):
    """Requirement on what a save does in the folder.

    Attributes:
        atomic: whether it is about replacing the file; else about who writes and who waits.
    """

    name: str
    atomic: bool
    flags: Sequence[str] = ()
    target: str = "Checkpoint"
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call on `RANKS` ranks; for an atomic save before it one on one rank with a full
        disk."""
        full = [make_call(draw, self.target, 1, full=True)] if self.atomic else []
        return [*full, make_call(draw, self.target, RANKS)]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the facts of a right save on each rank."""
        if call.options["full"]:
            return [{"kept": np.asarray(1)}]
        if not self.atomic:
            return [
                {"written": np.asarray(int(rank == 0)), "there": np.asarray(1)}
                for rank in range(call.ranks)
            ]
        facts = {name: np.asarray(right) for name, (right, _) in RENAME_FACTS.items()}
        return [facts, *({} for _ in range(call.ranks - 1))]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return 0 for every fact."""
        return [dict.fromkeys(own, np.asarray(0.0)) for own in self.expected(call)]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first wrong fact and the mistake that it shows; None if all facts are
        right."""
        arrays = list(answer.arrays)
        written = [int(own["written"]) for own in arrays]
        if self.atomic and any(written) and not call.options["full"]:
            arrays[0] = arrays[written.index(1)]  # who saves is another requirement's matter
        wrong = first_difference(arrays, self.expected(call), self.tolerance(call))
        if wrong is None:
            return None
        if not any(written):
            return wrong, ("first_checkpoint_kept",)
        if wrong.key == "written":
            return wrong, ("every_rank_writes" if all(written) else "wrong_rank_writes",)
        if wrong.key == "there":
            early = int(arrays[wrong.rank]["waits"]) > 0
            return wrong, ("barrier_early" if early else "no_barrier",)
        if wrong.key == "kept":
            renamed = int(arrays[0]["renamed"]) > 0
            return wrong, ("failure_ignored" if renamed else "written_in_place",)
        return wrong, (RENAME_FACTS[wrong.key][1],)
