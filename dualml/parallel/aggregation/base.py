"""Base class of aggregation strategies: algorithms that sum one vector over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.registry import ClassRegistry
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, count_step_groups

Tensor = Any


@keep_former_members
@dataclass(frozen=True)
class Strategy:
    """Sums a 1-D tensor over the ranks of a communicator.

    In its methods ``comm`` is the communicator, ``n`` the number of its ranks and ``length`` the
    number of elements of the tensor.

    Attributes:
        name: name in experiment files.
        exact: whether every rank ends with the sum, up to rounding.
        uses: primitives of the communicator that it consists of.
        is_point_to_point: whether its messages are sent here, one by one; otherwise a native
            collective sends them.
        formulas: messages m and bytes b that the busiest rank sends, and the time T of the critical
            path, in LaTeX with n ranks, S bytes, α and β.
        reference_algorithm: name of the strategy whose messages a native collective is assumed to
            send.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("exchange",)
    is_point_to_point: ClassVar[bool] = True
    formulas: ClassVar[tuple[str, ...]] = ()
    reference_algorithm: ClassVar[str] = ""

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Return the sum over ranks of ``x`` (1-D, the same length everywhere) on every rank, by
        executing the schedule. ``x`` may be overwritten and returned. All ranks call it."""
        return execute_schedule(self.schedule(comm.size), comm, x)

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return the messages among n ranks; for a native collective those of its reference
        algorithm."""
        return STRATEGIES[self.reference_algorithm]().schedule(n)

    def for_nodes(self, per_node: int) -> Strategy:
        """Return the strategy for ``per_node`` ranks on each machine: here itself, because only
        `Hierarchical` depends on it."""
        return self

    def for_layers(self, sizes: Sequence[int]) -> Strategy:
        """Return the strategy for a vector of layers with these numbers of elements, split only
        between layers. Only the ring overrides this: any other strategy raises an error.

        Raises:
            UserError: the strategy does not split the vector into one chunk per rank.
        """
        raise UserError(f"cut = layers is for the ring; {self.name} has no chunk for each rank")

    @classmethod
    def has_closed_form(cls) -> bool:
        """Return whether the strategy overrides `step_groups` by a closed form, which is cheap for
        any n; otherwise steps are counted message by message."""
        return cls.step_groups is not Strategy.step_groups

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return the steps of one aggregation of ``length`` elements, n ≥ 2, with sizes in
        elements. Here one group per step, counted from the schedule; closed forms group equal
        consecutive steps."""
        return count_step_groups(self.schedule(n), length)

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return the number of messages and of elements of the busiest link, n ≥ 2: of all that any
        one rank sends and all that it receives, the pair with most elements."""
        schedule = self.schedule(n)
        moved = (
            f(rank, length)
            for f in (schedule.sent_volume, schedule.received_volume)
            for rank in range(n)
        )
        return max(moved, key=lambda pair: (pair[1], pair[0]))


#: Name → strategy, in the order of tables.
STRATEGIES: ClassRegistry[Strategy] = ClassRegistry("strategy", "dualml.parallel.aggregation")


def execute_schedule(schedule: CollectiveSchedule, comm: Communicator, x: Tensor) -> Tensor:
    """Execute a schedule with point-to-point messages, on all ranks, and return the result; ``x``
    may be overwritten.

    A rank takes part only in the steps in which it sends or receives.
    """
    length, me = len(x), comm.rank
    for step in schedule.steps:
        out = [t for t in step if t.source == me]
        into = [t for t in step if t.target == me]
        if not out and not into:
            continue
        send = {t.target: comm.slice(x, *schedule.span(t, length)) for t in out}
        # A chunk that only replaces ours is received where it belongs, without a copy.
        receive = {}
        for t in into:
            place = comm.slice(x, *schedule.span(t, length))
            receive[t.source] = place if t.op == "put" else comm.scratch(place, t.source)
        got = comm.exchange(send, receive)
        for t in into:
            x = comm.write(x, schedule.span(t, length)[0], got[t.source], t.op)
    return x
