"""Requirements on ZeRO stage 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, draw_adam, draw_array, rounding_tolerance
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
from dualml.course.memory.rules import zero_adam
from dualml.course.mistakes import mistake_groups

STEPS = 4
#: A number of elements divisible by 1, 2, 3 and 4 ranks.
ELEMENTS = 24
(FLAGS,) = mistake_groups("memory", "zero")


@dataclass
class ZeroRequirement(ComputedRequirement):
    """Requirement on some updates on several ranks.

    Attributes:
        aspect: results that count: ``parameters``, ``state`` or ``sent``.
    """

    name: str
    ranks: Sequence[int]
    aspect: str = "parameters"
    flags: Sequence[str] = ()
    target: str = "ZeroAdam"

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: np.random.Generator, ranks: int) -> ExerciseCall:
        """Make a call of `STEPS` updates on this number of ranks: equal parameters, other gradients
        on each, and random hyperparameters of Adam."""
        options = {"hyper": draw_adam(draw), "steps": STEPS, "comm": True}
        p, steps = draw_array(draw, ELEMENTS), range(1, STEPS + 1)
        arrays = [
            {"p": p, **{f"g/{step}": draw_array(draw, ELEMENTS) for step in steps}}
            for _ in range(ranks)
        ]
        return ExerciseCall("zero", self.target, options, arrays)

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Compute each rank's results of ``aspect`` in float64, with the typical mistakes named in
        ``flags``."""
        return [self.select_keys(a) for a in zero_adam(call.options, call.arrays, flags)]

    def select_keys(self, arrays: Arrays) -> Arrays:
        """Return the arrays that belong to ``aspect``: ``3/parameters``, ``m`` and ``v``, or
        ``sent/NAME``."""

        def kind(key: str) -> str:
            """Return the aspect to which a key belongs."""
            return "state" if key in ("m", "v") else key.partition("/")[0 if "sent" in key else 2]

        return {key: a for key, a in arrays.items() if kind(key) == self.aspect}

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error."""
        exact = zero_adam(call.options, call.arrays, flags)
        single = zero_adam(call.options, call.arrays, flags, np.float32)
        most = rounding_tolerance(exact, single, lambda key: "sent" not in key)
        return [dict.fromkeys(own, most) for own in exact]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, with ``whole_state`` if a rank keeps the state of all
        elements; None if there is none."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        if wrong is None:
            return None
        whole = self.aspect == "state" and wrong.index is None and ELEMENTS > 0
        seen = answer.arrays[wrong.rank].get(wrong.key)
        if whole and call.ranks > 1 and seen is not None and np.size(seen) == ELEMENTS:
            return wrong, ("whole_state",)
        return wrong, ()

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, and every rank's gradient in it;
        empty unless a parameter's element is wrong."""
        step, _, name = difference.key.partition("/")
        if name != "parameters" or not difference.index:
            return {}
        i = difference.index[0]
        before = call.arrays[0]["p"]
        if int(step) > 1:
            before = self.expected(call)[0][f"{int(step) - 1}/parameters"]
        shown: dict[str, Any] = {f"θ_{int(step) - 1}": float(before[i])}
        for rank, arrays in enumerate(call.arrays):
            shown[f"g_{step} (rank {rank})"] = float(arrays[f"g/{step}"][i])
        return shown


@dataclass
class KeptGradientRequirement(ZeroRequirement):
    """Requirement on the gradient that is handed to an update, which must stay as it is."""

    aspect: str = "gradient"

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return every rank's gradients as they were given, ``3/gradient``."""
        steps = range(1, call.options["steps"] + 1)
        return [{f"{step}/gradient": own[f"g/{step}"] for step in steps} for own in call.arrays]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return 0 for all gradients."""
        return [dict.fromkeys(own, np.zeros(())) for own in self.expected(call)]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first changed number with the mistake ``zero_gradient_changed``; None if there
        is none."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        return None if wrong is None else (wrong, ("zero_gradient_changed",))


REQUIREMENTS: Sequence[Requirement] = (
    ZeroRequirement(
        "zero.alone",
        (1,),
        "parameters",
        ("zero_step_frozen", "zero_uncorrected", "changes_gathered"),
    ),
    ZeroRequirement("zero.update", (2, 3, 4), "parameters", FLAGS),
    ZeroRequirement("zero.state", (2, 4), "state", FLAGS[:3]),
    KeptGradientRequirement("zero.kept", (2,)),
    ZeroRequirement("zero.sent", (2, 4), "sent", ("all_reduced", "not_gathered")),
)
