"""What a strategy is: a way to add up one vector over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dualml.aggregation.schedule import Schedule, Stage, stages_of
from dualml.communicator.base import Communicator
from dualml.errors import UserError
from dualml.registry import Kinds

Tensor = Any


@dataclass(frozen=True)
class Strategy:
    """Adds up a 1-D tensor over the ranks of a communicator.

    In its methods ``comm`` is the communicator, ``n`` the number of its ranks and ``length`` how
    many elements the tensor has.

    Attributes:
        name: the word in an experiment file.
        exact: every rank ends with the sum, but for rounding.
        uses: primitives of the communicator it is made of.
        counted: its messages are made here, one by one; otherwise a native collective makes them.
        formulas: messages m and bytes b that the busiest rank sends, and the time T of the critical
            path, in LaTeX with n ranks, S bytes, α and β.
        textbook: the strategy whose messages a native collective is taken to send.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("exchange",)
    counted: ClassVar[bool] = True
    formulas: ClassVar[tuple[str, ...]] = ()
    textbook: ClassVar[str] = ""

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Σ over ranks of ``x`` (1-D, the same length everywhere), on every rank: what comes of the
        schedule. ``x`` is given away: it may be overwritten and returned."""
        return execute(self.schedule(comm.size), comm, x)

    def schedule(self, n: int) -> Schedule:
        """Who sends what to whom among n ranks; of a native collective as its textbook says."""
        return STRATEGIES[self.textbook]().schedule(n)

    def on_nodes(self, per_node: int) -> Strategy:
        """The strategy for ``per_node`` ranks on each machine, where that matters to it."""
        return self

    def on_layers(self, sizes: Sequence[int]) -> Strategy:
        """The strategy for a vector of layers with so many elements each, cut between layers alone.

        Raises:
            UserError: it does not cut the vector into one chunk for each rank.
        """
        raise UserError(f"cut = layers is for the ring; {self.name} has no chunk for each rank")

    @classmethod
    def closed(cls) -> bool:
        """Whether `stages` and `busiest` are closed forms, and so cheap for any n."""
        return cls.stages is not Strategy.stages

    def stages(self, n: int, length: int) -> list[Stage]:
        """The steps of one aggregation of ``length`` elements, alike ones together; n ≥ 2."""
        return stages_of(self.schedule(n), length)

    def busiest(self, n: int, length: int) -> tuple[int, int]:
        """Messages and elements that the busiest rank sends; it receives as many. n ≥ 2."""
        schedule = self.schedule(n)
        moved = (f(rank, length) for f in (schedule.sent, schedule.received) for rank in range(n))
        return max(moved, key=lambda pair: (pair[1], pair[0]))


#: Name → strategy, in the order of tables.
STRATEGIES: Kinds[Strategy] = Kinds("strategy", "dualml.aggregation")


def execute(schedule: Schedule, comm: Communicator, x: Tensor) -> Tensor:
    """Carry out a schedule with point-to-point messages; ``x`` may be overwritten.

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
            receive[t.source] = place if t.then == "put" else comm.scratch(place, t.source)
        got = comm.exchange(send, receive)
        for t in into:
            x = comm.write(x, schedule.span(t, length)[0], got[t.source], t.then)
    return x
