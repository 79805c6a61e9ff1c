"""Requirements on a language model with remote tables: it must train as one process does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import (
    ComputedRequirement,
    Draw,
    draw_array,
    is_far,
    round_for_display,
    rounding_tolerance,
)
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.language_model import weight_shapes
from dualml.course.mistakes import mistake_groups
from dualml.course.rnn_ps.inputs import remote_inputs
from dualml.course.rnn_ps.remote_rules import train_remote

#: As many sequences as words of each, so that the two axes can be mistaken for one another.
BATCH, LENGTH, WORDS, WIDTH, HIDDEN_SIZE, STEPS = 3, 3, 6, 3, 2, 3
LOSS, STATE, TABLES, RECURRENT = mistake_groups("rnn_ps", "loss", "state", "tables", "recurrent")
#: Aspect → names of the results that count.
ASPECTS: dict[str, tuple[str, ...]] = {
    "first_loss": ("1/loss",),
    "state": ("state",),
    "tables": ("table", "decoder", "decoder_bias", "state"),
    "recurrent": ("input", "hidden", "bias"),
    "loss": ("loss",),
}
ERRORS = (
    (r"step\(\) missing 1 required positional argument", "context_missing"),
    (r"backward\(\): incompatible function arguments", "context_missing"),
    (r"[Cc]ould not find autograd context|No autograd context", "context_ended"),
    (r"Already have an autograd context|Error on Node \d+: .*set timeout", "context_kept_open"),
    (r"[Cc]an't call .*local_?[vV]alue", "reference_not_local"),
    (r"backward through the graph a second time", "state_not_detached"),
    (r"graphTask_ INTERNAL ASSERT FAILED", "backward_local"),
)


@dataclass
class RemoteModelRequirement(ComputedRequirement):
    """Requirement on some updates, driven by the trainer, rank 1.

    Attributes:
        aspect: results that count, a key of `ASPECTS`.
    """

    name: str
    aspect: str
    flags: Sequence[str] = ()
    places: Sequence[str] = ("step=0", "step=!0")
    target: str = "RemoteModel"
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call on two ranks, with all numbers on rank 1."""
        lr = round_for_display(draw.uniform(0.3, 0.6))
        options = {"comm": True, "hyper": {"lr": lr}, "lr": lr, "steps": STEPS}
        shapes = {"table": (WORDS, WIDTH), **weight_shapes(WORDS, WIDTH, HIDDEN_SIZE)}
        arrays: dict[str, Any] = {name: draw_array(draw, *shape) for name, shape in shapes.items()}
        arrays["state"] = np.asarray(
            draw.uniform(-0.9, 0.9, (BATCH, HIDDEN_SIZE)).round(2), np.float32
        )
        for step in range(1, STEPS + 1):
            for name in ("words", "y"):
                arrays[f"{name}/{step}"] = draw.integers(0, WORDS, (BATCH, LENGTH))
        return [ExerciseCall("remote_tables", self.target, options, [{}, arrays])]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the results that count on rank 1 in the dtype ``number``, with the typical
        mistakes named in ``flags``; rank 0 returns nothing."""
        wanted = ASPECTS[self.aspect]
        whole = train_remote(call.options, call.arrays[1], flags, number)
        return [
            {},
            {k: a for k, a in whole.items() if k in wanted or k.partition("/")[2] in wanted},
        ]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error in all of them."""
        exact, single = (
            [train_remote(call.options, call.arrays[1], flags, n)] for n in (np.float64, np.float32)
        )
        most = rounding_tolerance(exact, single)
        return [dict.fromkeys(own, most) for own in self.compute(call, flags, np.float64)]

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether an answer is far from what these mistakes give, which saves the
        computation of the tolerance for most of them."""
        return is_far(answer.arrays, self.expected(call, flags))

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers from which the wrong one is computed (`remote_inputs`)."""
        made = train_remote(call.options, call.arrays[1])
        return remote_inputs(call.arrays[1], made, difference)


REMOTE: Sequence[Requirement] = (
    RemoteModelRequirement("remote.loss", "first_loss", LOSS),
    RemoteModelRequirement("remote.state", "state", STATE),
    RemoteModelRequirement("remote.tables", "tables", (*LOSS, *STATE, *TABLES)),
    RemoteModelRequirement("remote.recurrent", "recurrent", (*LOSS, *STATE, *RECURRENT)),
    RemoteModelRequirement("remote.losses", "loss", ()),
)
