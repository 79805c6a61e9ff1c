"""Requirements on process groups and RPC agents that a student starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, ExerciseCall, Flags, Requirement

#: Errors of a wrong start, by message, and the mistake.
STARTS = (
    (r"is started for \d+ ranks", "group_world_size"),
    (r"calls itself rank", "group_same_rank"),
    (r"(MASTER_ADDR|MASTER_PORT|MS_\w+) expected, but not set", "group_no_address"),
    (r"the ranks meet at port|no scheduler at", "group_port"),
)
BEFORE_GROUP = (
    r"(?i)process group has not been init|Communication has not been init",
    "group_before_start",
)
BEFORE_RPC = (r"(?i)rpc.* not.* init|init_rpc", "rpc_before_start")
UNKNOWN_AGENT = (r"(?i)unknown.* worker|could not find destination", "rpc_name")


@dataclass
class GroupStartRequirement(Requirement):
    """Requirement on a group that is started, used, and ended.

    Attributes:
        sizes: numbers of ranks to try.
        kind: kind of the call: ``group``, on ranks that reach one another; ``cluster``, on ranks
            without a scheduler, with a stand-in for it.
        remote: whether the work is a remote call to the next rank instead of a sum over all ranks.
    """

    name: str
    target: str
    sizes: Sequence[int]
    flags: Sequence[str]
    errors: Sequence[tuple[str, str]]
    kind: str = "group"
    remote: bool = False

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``sizes``, with a random integer on every rank,
        and one with work that fails on the first of these."""
        fails: dict[str, Any] = {"fails": True, "hyper": {"work": "raise RuntimeError"}}
        kinds: list[tuple[int, dict[str, Any]]] = [(size, {"hyper": {}}) for size in self.sizes]
        return [
            ExerciseCall(
                self.kind,
                self.target,
                {"comm": True, **options},
                [{"value": np.asarray(float(draw.integers(1, 50)))} for _ in range(size)],
            )
            for size, options in (*kinds, (self.sizes[0], fails))
        ]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return for each rank ``sum``, the sum of all ranks' values (its own value + 1 if
        ``remote``), or 1 for the error of work that fails, and ``left``, 1 if the group is left
        open, with the typical mistakes named in ``flags``."""
        values = [float(own["value"]) for own in call.arrays]
        fails = bool(call.options.get("fails"))
        open_after = {"group_left", "rpc_left", *(("group_left_on_error",) if fails else ())}
        left = 1.0 if flags & open_after else 0.0

        def expected_sum(value: float) -> float:
            """Return a rank's result."""
            if fails:
                return -1.0 if "group_error_lost" in flags else 1.0
            if "group_unreturned" in flags:
                return -1.0
            return value + 1.0 if self.remote else sum(values)

        return [{"sum": np.asarray(expected_sum(v)), "left": np.asarray(left)} for v in values]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return a tolerance of 1e-3 for both numbers of every rank."""
        return [dict.fromkeys(("sum", "left"), np.asarray(1e-3)) for _ in call.arrays]


def group_requirements(rpc: bool) -> list[Requirement]:
    """Return the requirements, including those on remote calls if the framework has them."""
    flags = ("group_left", "group_unreturned", "group_left_on_error", "group_error_lost")
    kind = "group" if rpc else "cluster"
    group = GroupStartRequirement(
        "group.sum", "run_group", (2, 3), flags, (*STARTS, BEFORE_GROUP), kind
    )
    if not rpc:
        return [group]
    flags = ("rpc_left", *flags[1:])
    errors = (*STARTS, BEFORE_RPC, UNKNOWN_AGENT)
    return [
        group,
        GroupStartRequirement("agents.call", "run_rpc", (3,), flags, errors, remote=True),
    ]
