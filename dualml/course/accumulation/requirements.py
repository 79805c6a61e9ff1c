"""Requirements on accumulated gradients: every update is that of one big batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.accumulation.model import IGNORED, WEIGHTS
from dualml.course.accumulation.rules import accumulated_training, train_epoch
from dualml.course.computed import ComputedRequirement, Draw, draw_array, rounding_tolerance
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

#: Features and classes; sequences of a micro-batch, and their positions.
FEATURES, CLASSES, SEQUENCES, POSITIONS = 3, 4, 2, 4
SHAPES: dict[str, tuple[int, ...]] = {"w": (FEATURES, CLASSES), "b": (CLASSES,)}
#: A bound that no gradient's norm reaches.
UNBOUNDED = 1e6
#: Elements of an update that may be sent beside the gradient: counts and losses.
EXTRA_ELEMENTS = 16
RANK_MISMATCH = r"CommunicationError: (rank \d+ waited|the ranks disagree|.*(is gone|missing))"
STEPS, SCALE, TOKENS, RANKS, REMAINDER, CLIP, LOSS = mistake_groups(
    "accumulation", "steps", "scale", "tokens", "ranks", "remainder", "clip", "loss"
)


def draw_labels(draw: Draw, tokens: int) -> Any:
    """Draw labels (2, T) with this number of tokens; the end of each sequence is padded."""
    y = draw.integers(CLASSES, size=(SEQUENCES, POSITIONS)).astype(np.int32)
    first = int(draw.integers(max(0, tokens - POSITIONS), min(POSITIONS, tokens) + 1))
    for row, length in zip(y, (first, tokens - first), strict=True):
        row[length:] = IGNORED
    return y


def draw_counts(draw: Draw, aspect: str, ranks: int, micro_batches: int, k: int) -> Any:
    """Draw the numbers of tokens of all micro-batches, (ranks, micro_batches): all positions for
    the aspect ``even``, else different ones within an update of ``k`` micro-batches; for ``empty``
    one of the last rank has none."""
    counts = np.full((ranks, micro_batches), SEQUENCES * POSITIONS)
    for first in range(0, micro_batches if aspect != "even" else 0, k):
        part = counts[:, first : first + k]
        while True:  # until the ranks' sums differ, too
            different = draw.permutation(np.arange(1, SEQUENCES * POSITIONS))[: part.size]
            part[:] = different.reshape(part.shape)
            if len(set(part.sum(1))) == ranks:
                break
    if aspect == "empty":
        counts[-1, 1] = 0
    return counts


@dataclass
class AccumulationRequirement(ComputedRequirement):
    """Requirement on the updates of some epochs.

    Attributes:
        ranks: numbers of ranks, a call each.
        aspect: ``even`` (as many tokens everywhere), ``uneven``, ``remainder`` (two epochs of a
            number of micro-batches that k does not divide, with gradients left from before),
            ``clip``, ``empty`` (micro-batches without a token), ``loss``, or ``sent``.
    """

    name: str
    ranks: Sequence[int]
    aspect: str
    flags: Sequence[str] = ()
    errors: Sequence[tuple[str, str]] = ()
    target: str = "train_epoch"

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call on this number of ranks: equal parameters, other micro-batches on each."""
        k = 3 if ranks == 1 and self.aspect == "uneven" else 2
        rest = self.aspect in ("remainder", "loss")
        # One update where it shows everything: an update of a rank takes a good part of a second.
        single = rest or ranks > 1 or self.aspect == "uneven"
        count = k * (1 if single else 2) + (int(draw.integers(1, k)) if rest else 0)
        hyper = {"lr": round(float(draw.uniform(0.3, 0.6)), 2), "k": k, "max_norm": UNBOUNDED}
        options: dict[str, Any] = {
            "comm": True,
            "hyper": hyper,
            "epochs": 2 if self.aspect == "remainder" else 1,
            "micro_batches": count,
            "loss": self.aspect in ("loss", "empty"),
        }
        start = {f"p/{name}": draw_array(draw, *shape) for name, shape in SHAPES.items()}
        arrays: list[dict[str, Any]] = [dict(start) for _ in range(ranks)]
        if self.aspect == "remainder":
            for own in arrays:
                own |= {f"stale/{n}": draw_array(draw, *shape) for n, shape in SHAPES.items()}
        for epoch in range(options["epochs"]):
            tokens = draw_counts(draw, self.aspect, ranks, count, k)
            for rank, own in enumerate(arrays):
                for i in range(1, count + 1):
                    # Larger inputs in the first update, whose gradient is to be clipped.
                    size = 3.0 if self.aspect == "clip" and i <= k else 1.0
                    x = draw_array(draw, SEQUENCES, POSITIONS, FEATURES)
                    own[f"x/{epoch}/{i}"] = np.float32(size) * x
                    own[f"y/{epoch}/{i}"] = draw_labels(draw, int(tokens[rank, i - 1]))
        if self.aspect == "clip":
            hyper["max_norm"] = choose_bound(options, arrays)
        return ExerciseCall("accumulate", self.target, options, arrays)

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's parameters after every update, in the dtype ``number``."""
        return accumulated_training(call.options, call.arrays, flags, number)

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results: the float32 rule's own error with a margin, and the
        1e-6 that frameworks add to a norm by which they divide."""
        exact, single = (self.compute(call, flags, n) for n in (np.float64, np.float32))
        most = rounding_tolerance(exact, single, lambda key: key != "updates") + 4e-6
        return [dict.fromkeys(own, most) for own in exact]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference; for ``sent`` also that of a rank which has sent more than
        the gradient once in an update; None if there is none."""
        found = super().problem(call, answer)
        if found is not None or self.aspect != "sent" or call.ranks == 1:
            return found
        updates = (
            call.options["epochs"] * call.options["micro_batches"] // call.options["hyper"]["k"]
        )
        gradient = sum(int(np.prod(shape)) for shape in SHAPES.values())
        for rank, arrays in enumerate(answer.arrays):
            sent = sum(int(np.sum(a)) for key, a in arrays.items() if key.startswith("sent/"))
            if sent > updates * (gradient + EXTRA_ELEMENTS):
                right = updates * (gradient + 1)
                return Difference(rank, "sent", None, sent, right), ("accum_sent_each",)
        return None

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, the tokens of each rank, and the
        mean gradient, with its norm if it is clipped; for a loss the sum of losses and the tokens
        of each rank, for a number of updates those of micro-batches; empty for anything else."""
        step, _, name = difference.key.partition("/")
        if difference.index is None or not (name in WEIGHTS or step in ("updates", "losses")):
            return {}
        if step == "updates":
            counts = {name: call.options[name] for name in ("epochs", "micro_batches")}
            return {**counts, "k": call.options["hyper"]["k"]}
        training = train_epoch(call.options, call.arrays)
        if step == "losses":
            made = training.details[difference.index[0]]
            shown = {f"L_{rank}": float(loss) for rank, loss in enumerate(made["loss"])}
            return shown | {f"N_{rank}": n for rank, n in enumerate(made["tokens"])}
        right = training.out[0]
        before = right.get(f"{int(step) - 1}/{name}", call.arrays[0][f"p/{name}"])
        shown = {f"θ_{int(step) - 1}": float(before[difference.index])}
        made = training.details[int(step) - 1]
        shown |= {f"N_{rank}": n for rank, n in enumerate(made["tokens"])}
        shown["g"] = float(made["gradient"][name][difference.index])
        if call.options["hyper"]["max_norm"] < UNBOUNDED:
            shown["‖g‖"] = float(made["norm"])
        return shown


def choose_bound(options: Any, arrays: Sequence[Arrays]) -> float:
    """Return a bound of the gradients' norms: on one rank between the smallest and the largest
    norm; on several half of the largest number in a gradient, which every kind of clipping
    changes."""
    details = train_epoch(options, arrays).details
    norms = [float(made["norm"]) for made in details]
    largest = max(float(np.abs(g).max()) for made in details for g in made["gradient"].values())
    bound = np.sqrt(min(norms) * max(norms)) if len(arrays) == 1 else largest / 2
    return float(round(bound, 3))


REQUIREMENTS: Sequence[Requirement] = (
    AccumulationRequirement("accumulate.alone", (1,), "even", (*STEPS, *SCALE)),
    AccumulationRequirement("accumulate.tokens", (1,), "uneven", (*TOKENS, *SCALE)),
    AccumulationRequirement("accumulate.ranks", (2,), "uneven", (*RANKS, *TOKENS)),
    AccumulationRequirement("accumulate.remainder", (1,), "remainder", (*REMAINDER, *STEPS)),
    AccumulationRequirement("accumulate.clip", (1, 2), "clip", CLIP),
    AccumulationRequirement("accumulate.loss", (2,), "loss", LOSS),
    AccumulationRequirement(
        "accumulate.empty",
        (2,),
        "empty",
        ("accum_empty_nan", "accum_empty_nan#2", *LOSS),
        errors=((RANK_MISMATCH, "accum_empty_skipped"),),
    ),
    AccumulationRequirement("accumulate.sent", (2,), "sent", RANKS),
)
