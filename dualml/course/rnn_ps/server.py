"""Requirements on a parameter server with several trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import (
    RANK_MISMATCH,
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
from dualml.course.rnn_ps.inputs import server_inputs
from dualml.course.rnn_ps.server_rules import train_with_server

BATCH, LENGTH, WORDS, WIDTH, HIDDEN_SIZE, STEPS = 3, 4, 24, 4, 2, 3
#: Bytes of a message to or from a trainer that are not numbers of the rule.
SLACK = 64
ONE_TRAINER, SEVERAL_TRAINERS, STALE_PARAMETERS = mistake_groups(
    "rnn_ps", "server_alone", "server_several", "fetched"
)
ERRORS = (*RANK_MISMATCH, (r"rank \d+ receives .* and expects", "message_mismatch"))
#: Aspect → names of the results that count.
ASPECTS = {"parameters": ("table", "weights"), "loss": ("loss",)}


def make_call(draw: Draw, target: str, ranks: int) -> ExerciseCall:
    """Make a call of `STEPS` updates on one server and ``ranks`` − 1 trainers, whose words often
    occur twice."""
    lr = round_for_display(draw.uniform(0.3, 0.6))
    options = {
        "comm": True,
        "hyper": {"lr": lr},
        "lr": lr,
        "steps": STEPS,
        "words": WORDS,
        "width": WIDTH,
        "hidden": HIDDEN_SIZE,
        "length": LENGTH,
        "batch": BATCH,
    }
    shapes = {"table": (WORDS, WIDTH), **weight_shapes(WORDS, WIDTH, HIDDEN_SIZE)}
    server = {name: draw_array(draw, *shape) for name, shape in shapes.items()}
    arrays: list[dict[str, Any]] = [server, *({} for _ in range(ranks - 1))]
    for step in range(1, STEPS + 1):
        # Some words of the table, so that trainers and positions share them.
        some = draw.choice(WORDS, size=8, replace=False)
        for own in arrays[1:]:
            own[f"words/{step}"] = draw.choice(some, size=LENGTH * BATCH)
            own[f"y/{step}"] = draw.integers(0, WORDS, (LENGTH, BATCH))
    return ExerciseCall("rows", target, options, arrays)


@dataclass
class ServerRequirement(ComputedRequirement):
    """Requirement on some updates of a server and its trainers.

    Attributes:
        ranks: numbers of ranks, of a call each; one of them is the server.
        aspect: results that count, a key of `ASPECTS`.
    """

    name: str
    ranks: Sequence[int]
    aspect: str
    flags: Sequence[str] = ()
    places: Sequence[str] = ("tensor=0", "tensor=1", "step=0", "step=!0")
    target: str = "ParameterServer"
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [make_call(draw, self.target, n) for n in self.ranks]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count in the dtype ``number``, with the typical mistakes
        named in ``flags``."""
        return [
            {k: a for k, a in own.items() if k.partition("/")[2] in ASPECTS[self.aspect]}
            for own in train_with_server(call.options, call.arrays, flags, number)
        ]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error in all of them."""
        exact, single = (
            train_with_server(call.options, call.arrays, flags, n) for n in (np.float64, np.float32)
        )
        most = rounding_tolerance(exact, single)
        return [dict.fromkeys(own, most) for own in self.compute(call, flags, np.float64)]

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether an answer is far from what these mistakes give, which saves the
        computation of the tolerance for most of them."""
        return is_far(answer.arrays, self.expected(call, flags))

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers from which the wrong one is computed (`server_inputs`)."""
        made = train_with_server(call.options, call.arrays)
        return server_inputs(call.arrays, made, difference)


@dataclass
class TrafficRequirement(Requirement):
    """Requirement on the bytes that a server and its trainers send."""

    name: str = "server.sent"
    ranks: int = 3
    target: str = "ParameterServer"
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call of one server and ``ranks`` − 1 trainers."""
        return [make_call(draw, self.target, self.ranks)]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the largest number of bytes that each rank may send: rows and weights to every
        trainer, and on a trainer its words and the gradients of rows and weights."""
        h = call.options
        shapes = weight_shapes(h["words"], h["width"], h["hidden"])
        count, n = sum(int(np.prod(s)) for s in shapes.values()), h["length"] * h["batch"]
        values = 4 * (n * h["width"] + count)
        trainers = call.ranks - 1
        most = [trainers * (values + SLACK), *[values + 8 * n + SLACK] * trainers]
        return [{"bytes": np.asarray(h["steps"] * each)} for each in most]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return how far the bytes may be away from the most: any number of bytes below it."""
        return self.expected(call)

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first rank that sends too much, with the mistake that it sends a whole
        gradient or a whole table; None if no rank does."""
        for rank, most in enumerate(self.expected(call)):
            sent, limit = int(answer.arrays[rank]["bytes"]), int(most["bytes"])
            if sent > limit:
                name = "whole_gradient_sent" if rank else "whole_table_sent"
                return Difference(rank, "bytes", (), sent, limit), (name,)
        return None


SERVER: Sequence[Requirement] = (
    ServerRequirement("server.alone", (2,), "parameters", (*ONE_TRAINER, *STALE_PARAMETERS)),
    ServerRequirement(
        "server.update", (3, 4), "parameters", (*ONE_TRAINER, *SEVERAL_TRAINERS, *STALE_PARAMETERS)
    ),
    ServerRequirement(
        "server.loss", (3,), "loss", (*ONE_TRAINER, *SEVERAL_TRAINERS, *STALE_PARAMETERS)
    ),
    TrafficRequirement(),
)
