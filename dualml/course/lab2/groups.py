"""What has to come of a group of ranks, and of agents for remote calls, that a student starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Call, Flags, Requirement

#: How a start that went wrong ends; the numbers are in the message.
STARTS = (
    (r"is started for \d+ ranks", "group_world_size"),
    (r"calls itself rank", "group_same_rank"),
    (r"(MASTER_ADDR|MASTER_PORT|MS_\w+) expected, but not set", "group_no_address"),
)
BEFORE_GROUP = (r"(?i)process group has not been init|Communication has not been init",
                "group_before_start")  # fmt: skip
BEFORE_RPC = (r"(?i)rpc.* not.* init|init_rpc", "rpc_before_start")


@dataclass
class Started(Requirement):
    """A group that is started, worked in, and ended.

    Attributes:
        sizes: numbers of ranks that it is tried with.
        kind: how it is called: ``group``, on ranks that reach one another; ``cluster``, on ranks
            that find no scheduler, with a stand-in for it.
        remote: whether the work is a call to the next rank, not a sum over all.
    """

    name: str
    target: str
    sizes: Sequence[int]
    flags: Sequence[str]
    errors: Sequence[tuple[str, str]]
    kind: str = "group"
    remote: bool = False
    points: float = 1.0

    def calls(self, draw: np.random.Generator) -> list[Call]:
        return [
            Call(self.kind, self.target, {"comm": True, "hyper": {}}, [
                {"value": np.asarray(float(draw.integers(1, 50)))} for _ in range(size)
            ])
            for size in self.sizes
        ]  # fmt: skip

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        values = [float(own["value"]) for own in call.arrays]
        left = 1.0 if flags & {"group_left", "rpc_left"} else 0.0

        def found(value: float) -> float:
            if "group_unreturned" in flags:
                return -1.0
            return value + 1.0 if self.remote else sum(values)

        return [{"sum": np.asarray(found(v)), "left": np.asarray(left)} for v in values]

    def tolerance(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        return [dict.fromkeys(("sum", "left"), np.asarray(1e-3)) for _ in call.arrays]


def of_groups(rpc: bool) -> list[Requirement]:
    """The requirements; those about remote calls where the framework has them."""
    flags = ("group_left", "group_unreturned")
    kind = "group" if rpc else "cluster"
    group = Started("group.sum", "run_group", (2, 3), flags, (*STARTS, BEFORE_GROUP), kind)
    if not rpc:
        return [group]
    flags = ("rpc_left", "group_unreturned")
    errors = (*STARTS, BEFORE_RPC)
    return [group, Started("agents.call", "run_rpc", (3,), flags, errors, remote=True)]
