"""Requirements on data parallel training: after every update each rank has the parameters of one
node that trains on all ranks' samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, Draw, draw_array, max_finite
from dualml.course.differences import distances
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.lab3.draws import (
    FEATURES,
    OUTPUTS,
    STEPS,
    Sizes,
    draw_even_sizes,
    draw_parameters,
    draw_sizes_with_empty_rank,
    draw_uneven_sizes,
)
from dualml.course.lab3.rank_optimizer import WEIGHTS
from dualml.course.lab3.rules import Evaluation, loss_and_gradient, trajectory
from dualml.course.lab3.start_rule import broadcast_start
from dualml.course.lab3.update_mistakes import (
    EMPTY,
    EMPTY_ERRORS,
    EMPTY_LOSS,
    EMPTY_WITH_LOSS,
    LOCAL,
    LOSS,
    NO_LOSS,
    ONE_RANK_MISTAKES,
    PLACES,
    RANK_MISMATCH,
    SCALED,
    SHARES,
    START,
    START_ERRORS,
    START_PLACES,
    WITH_LOSS,
)

#: Largest distance, relative to the largest number, at which two first updates may agree.
FIRST_UPDATE_TOLERANCE = 1e-3


#: Names of the samples among the results of an update.
SAMPLES = ("x", "y")
#: Mistake that a difference of the samples shows by itself.
SAMPLES_CHANGED = "update_samples_changed"


def evaluate_start(ranks: Sequence[Arrays]) -> Evaluation:
    """Compute each rank's loss and gradient before the first update, in float64."""
    return [
        loss_and_gradient(
            {w: own[f"p/{w}"].astype(np.float64) for w in WEIGHTS},
            *(own[key].astype(np.float64) for key in ("p/shift", "x/1", "y/1")),
        )
        for own in ranks
    ]


def given_samples(own: Arrays, steps: int) -> Arrays:
    """Return a rank's samples of all updates under the keys of its results, as ``3/x``."""
    return {f"{s}/{name}": own[f"{name}/{s}"] for s in range(1, steps + 1) for name in SAMPLES}


@dataclass
class RankResultRequirement(ComputedRequirement):
    """Requirement on the results of every rank, for some numbers of ranks."""

    name: str
    target: str
    flags: Sequence[str] = ()
    ranks: Sequence[int] = (1,)
    errors: Sequence[tuple[str, str]] = ()
    places: Sequence[str] = ()


@dataclass
class SameStartRequirement(RankResultRequirement):
    """Requirement on equal initial parameters, from different ones on every rank."""

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``, with other parameters on every
        rank."""
        return [
            ExerciseCall(
                "same_start",
                self.target,
                {"comm": True, "hyper": {}},
                [draw_parameters(draw) for _ in range(ranks)],
            )
            for ranks in self.ranks
        ]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the parameters of every rank after the broadcast, in the dtype ``number``."""
        return broadcast_start(call.arrays, flags, number)


@dataclass
class UpdateRequirement(RankResultRequirement):
    """Requirement on some updates.

    Attributes:
        sizes: function that draws each rank's number of samples in an update.
        adaptive: whether to use AdaGrad, for which the mean of updates is not the update of the
            mean.
        loss: whether the returned loss counts, too.
        known: the call that was looked at last, and its losses and gradients at the start.
    """

    sizes: Sizes = draw_uneven_sizes
    adaptive: bool = False
    loss: bool = False
    known: tuple[ExerciseCall, Evaluation] | None = None

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [self.make_call(draw, ranks) for ranks in self.ranks]

    def make_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call of `STEPS` updates on this number of ranks, with equal random parameters and
        other random samples on each."""
        hyper = {
            "lr": round(float(draw.uniform(0.1, 0.3)), 2),
            "adaptive": self.adaptive,
            "eps": 0.1,
        }
        options = {"comm": True, "hyper": hyper, "steps": STEPS, "loss": self.loss}
        start = draw_parameters(draw)
        arrays: list[dict[str, Any]] = [dict(start) for _ in range(ranks)]
        for step in range(1, STEPS + 1):
            for own, n in zip(arrays, self.sizes(draw, ranks), strict=True):
                for name, width in (("x", FEATURES), ("y", OUTPUTS)):
                    own[f"{name}/{step}"] = draw_array(draw, n, width)
        return ExerciseCall("train_steps", self.target, options, arrays)

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's samples and parameters after every update, and its losses if they
        count, in the dtype ``number``."""
        found = trajectory(call.options, call.arrays, flags, number)
        return [
            {**given_samples(own, call.options["steps"]), **results}
            for own, results in zip(call.arrays, found, strict=True)
        ]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, and the mistake that it shows if it is one of the samples,
        which an update does not change."""
        found = super().problem(call, answer)
        if found and found[0].key.partition("/")[2] in SAMPLES:
            return found[0], (SAMPLES_CHANGED,)
        return found

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether the first update with these mistakes is far from the answer's, which takes
        a fraction of the time of all updates."""
        if self.known is None or self.known[0] is not call:
            self.known = call, evaluate_start(call.arrays)
        only_first = {**call.options, "steps": 1, "of": call.options["steps"]}
        first = trajectory(only_first, call.arrays, flags, known=self.known[1])
        for own, results in zip(answer.arrays, first, strict=True):
            for key, a in results.items():
                if own[key].shape != a.shape:
                    return True
                off = distances(own[key], a)
                if np.any(off > FIRST_UPDATE_TOLERANCE * (1 + max_finite(a))):
                    return True
        return False

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, and each rank's number of samples
        and gradient (or loss) in it; empty if the difference has no element."""
        step, _, name = difference.key.partition("/")
        if difference.index is None or name in SAMPLES:
            return {}
        before = self.expected(call)[0]
        weights = {w: before.get(f"{int(step) - 1}/{w}", call.arrays[0][f"p/{w}"]) for w in WEIGHTS}
        shown: dict[str, Any] = {}
        if name in weights:
            shown[f"θ_{int(step) - 1}"] = float(weights[name][difference.index])
        for rank, own in enumerate(call.arrays):
            given = (own[k].astype(np.float64) for k in ("p/shift", f"x/{step}", f"y/{step}"))
            loss, gradient = loss_and_gradient(weights, *given)
            shown[f"n_{rank}"] = len(own[f"y/{step}"])
            key, value = ("ℓ", loss) if name == "loss" else ("g", gradient[name][difference.index])
            shown[f"{key}_{rank}"] = float(value)
        return shown


def training_requirements() -> list[Requirement]:
    """Return the requirements on data parallel training."""
    start, step = "same_start", "train_step"
    skipped = (RANK_MISMATCH, "update_collective_skipped")
    unequal = ("update_unweighted", *LOCAL, *SCALED, *SHARES)
    return [
        SameStartRequirement(
            "train.start",
            start,
            START,
            ranks=(1, 3),
            errors=START_ERRORS,
            places=START_PLACES,
        ),
        UpdateRequirement("train.alone", step, ONE_RANK_MISTAKES, sizes=draw_even_sizes),
        UpdateRequirement(
            "train.even", step, (*LOCAL, *SCALED), (2, 3), (skipped,), PLACES, draw_even_sizes
        ),
        UpdateRequirement("train.uneven", step, unequal, (2, 4), (skipped,), PLACES),
        UpdateRequirement(
            "train.adaptive",
            step,
            ("update_parameters", *unequal),
            (3,),
            (skipped,),
            PLACES,
            adaptive=True,
        ),
        UpdateRequirement(
            "train.loss",
            step,
            (*LOSS, *unequal, *WITH_LOSS),
            (3,),
            (NO_LOSS, skipped),
            PLACES,
            loss=True,
        ),
        UpdateRequirement(
            "train.empty",
            step,
            (*EMPTY, *EMPTY_LOSS, *LOSS, *unequal, *WITH_LOSS, *EMPTY_WITH_LOSS),
            (3,),
            (NO_LOSS, (RANK_MISMATCH, "update_empty_leaves"), *EMPTY_ERRORS),
            ("samples=0", "samples=!0", *PLACES),
            sizes=draw_sizes_with_empty_rank,
            loss=True,
        ),
    ]
