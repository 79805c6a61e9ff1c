"""Requirements on data parallel training: after every update each rank has the parameters of one
node that trains on all ranks' samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, Draw, draw_array
from dualml.course.exercise import Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.lab3.rules import WEIGHTS, broadcast_start, loss_and_gradient, trajectory
from dualml.course.mistakes import mistake_groups

#: Sizes of the network's layers, and number of updates.
FEATURES, HIDDEN_SIZE, OUTPUTS, STEPS = 4, 3, 2, 3
SHAPES = {
    "w1": (FEATURES, HIDDEN_SIZE),
    "b1": (HIDDEN_SIZE,),
    "w2": (HIDDEN_SIZE, OUTPUTS),
    "b2": (OUTPUTS,),
    "shift": (FEATURES,),
}
Sizes = Callable[[Draw, int], list[int]]

LOCAL, SCALED, LOSS = mistake_groups("lab3", "local", "scaled", "loss")
#: Pattern of the errors that occur if one rank does not take part.
RANK_MISMATCH = r"CommunicationError: (rank \d+ waited|the ranks disagree)"


def draw_even_sizes(draw: Draw, ranks: int) -> list[int]:
    """Draw one number of samples, 3 to 5, and return it for every rank."""
    return [int(draw.integers(3, 6))] * ranks


def draw_uneven_sizes(draw: Draw, ranks: int) -> list[int]:
    """Draw different numbers of samples for all ranks."""
    return [int(n) for n in draw.choice(np.arange(1, 9), ranks, replace=False)]


def draw_sizes_with_empty_rank(draw: Draw, ranks: int) -> list[int]:
    """Draw numbers of samples with none on one random rank other than rank 0."""
    sizes = draw_uneven_sizes(draw, ranks)
    sizes[int(draw.integers(1, ranks))] = 0
    return sizes


def draw_parameters(draw: Draw) -> dict[str, Any]:
    """Draw initial parameters: ``p/NAME`` → float32 with two decimals."""
    return {f"p/{name}": draw_array(draw, *shape) for name, shape in SHAPES.items()}


@dataclass
class RankResultRequirement(ComputedRequirement):
    """Requirement on the results of every rank, for some numbers of ranks."""

    name: str
    target: str
    flags: Sequence[str] = ()
    ranks: Sequence[int] = (1,)
    errors: Sequence[tuple[str, str]] = ()


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
    """

    sizes: Sizes = draw_uneven_sizes
    adaptive: bool = False
    loss: bool = False

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
        """Compute each rank's parameters after every update, and its losses if they count, in the
        dtype ``number``."""
        return trajectory(call.options, call.arrays, flags, number)

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, and each rank's number of samples
        and gradient (or loss) in it; empty if the difference has no element."""
        step, _, name = difference.key.partition("/")
        if difference.index is None:
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
    return [
        SameStartRequirement(
            "train.start",
            start,
            (
                "start_not_broadcast",
                "start_averaged",
                "start_other_root",
                "start_first_alone",
                "start_buffers_left",
            ),
            ranks=(1, 3),
            errors=(
                ("ranks disagree.*broadcast.*root=1", "start_own_root"),
                (RANK_MISMATCH, "start_root_alone"),
            ),
        ),
        UpdateRequirement("train.alone", step, ("update_accumulated",), sizes=draw_even_sizes),
        UpdateRequirement("train.even", step, (*LOCAL, *SCALED), (2, 3), sizes=draw_even_sizes),
        UpdateRequirement("train.uneven", step, ("update_unweighted", *LOCAL, *SCALED), (2, 4)),
        UpdateRequirement(
            "train.adaptive",
            step,
            ("update_parameters", "update_unweighted", *LOCAL, *SCALED),
            (3,),
            adaptive=True,
        ),
        UpdateRequirement(
            "train.loss", step, (*LOSS, "update_unweighted", *LOCAL, *SCALED), (3,), loss=True
        ),
        UpdateRequirement(
            "train.empty",
            step,
            ("update_loss_nan", *LOSS, "update_unweighted", *LOCAL, *SCALED),
            (3,),
            sizes=draw_sizes_with_empty_rank,
            loss=True,
            errors=((RANK_MISMATCH, "update_empty_leaves"),),
        ),
    ]
