"""Event simulation of a pipeline: any schedule, pass by pass, with a clock for each rank.

A rank runs its program in order, and each pass as soon as its dependencies are met. A message
between two stages travels while both ranks compute: the sender does not wait, and the receiver
waits only if it has nothing else to do next. Messages from one rank to another are serialized, each
taking α + β·bytes; stages of one rank exchange values at no cost. The ticks of the grid are
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.parallel.split.order import dependencies, validate
from dualml.parallel.split.schedule import Action, Grid
from dualml.planning.cost.link import Link


@dataclass(frozen=True)
class PassSpan:
    """A pass with its start and end in seconds."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Message:
    """The output of ``action`` on its way to the rank of the next stage, with start and end in
    seconds."""

    action: Action
    source: int
    target: int
    start: float
    end: float


@dataclass(frozen=True)
class PipelineTimeline:
    """Simulated timeline of one update of a pipeline.

    Attributes:
        spans: for every rank its passes, in order.
        messages: messages between ranks, in the order in which they leave each rank.
        update_s: seconds of the optimizer after a rank's last pass.
        live: for every rank the largest number of activations that it holds at once.
    """

    spans: tuple[tuple[PassSpan, ...], ...]
    messages: tuple[Message, ...]
    update_s: float
    live: tuple[int, ...]

    @property
    def finish(self) -> tuple[float, ...]:
        """Seconds at which each rank has finished its update."""
        return tuple(max((s.end for s in row), default=0.0) + self.update_s for row in self.spans)

    @property
    def seconds(self) -> float:
        """Seconds at which the last rank has finished its update (makespan)."""
        return max(self.finish)

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds that each rank computes, its update included."""
        return tuple(math.fsum(s.end - s.start for s in row) + self.update_s for row in self.spans)

    @property
    def idle(self) -> tuple[float, ...]:
        """Seconds in which each rank does not compute, from 0 until the last rank has finished."""
        return tuple(self.seconds - busy for busy in self.busy)

    @property
    def bubble(self) -> float:
        """Idle share of the ranks' time: 1 − busy / (p · makespan)."""
        total = len(self.spans) * self.seconds
        return 1 - math.fsum(self.busy) / total if total else 0.0

    def rows(self) -> list[tuple[int, str, str, float, float]]:
        """Return all events for drawing as (rank, label, kind, start, end), with the kinds ``F``,
        ``B``, ``update`` and, at the sender, ``send``."""
        rows: list[tuple[int, str, str, float, float]] = []
        for rank, row in enumerate(self.spans):
            rows += [(rank, str(s.action), s.action.kind, s.start, s.end) for s in row]
            if self.update_s:
                end = self.finish[rank]
                rows.append((rank, "", "update", end - self.update_s, end))
        return rows + [(m.source, str(m.action), "send", m.start, m.end) for m in self.messages]

    def describe(self) -> JsonObject:
        """Return the timeline as JSON-compatible values, in seconds."""
        return {
            "seconds": self.seconds,
            "bubble": self.bubble,
            "busy_s": list(self.busy),
            "idle_s": list(self.idle),
            "update_s": self.update_s,
            "live": list(self.live),
            "ranks": [
                [{"action": str(s.action), "start_s": s.start, "end_s": s.end} for s in row]
                for row in self.spans
            ],
            "messages": [
                {
                    "action": str(m.action),
                    "source": m.source,
                    "target": m.target,
                    "start_s": m.start,
                    "end_s": m.end,
                }
                for m in self.messages
            ],
        }


def simulate_pipeline(
    grid: Grid,
    forward_s: float | Sequence[float],
    backward_s: float | Sequence[float],
    transfer_s: float | Sequence[float] = 0.0,
    update_s: float = 0.0,
) -> PipelineTimeline:
    """Simulate one update of a pipeline.

    Args:
        grid: the schedule; only the order of its programs matters.
        forward_s, backward_s: seconds of one micro-batch in each stage, or one number for all.
        transfer_s: seconds of one message over each boundary between stages, in either direction,
            or one number for all; see `message_s`.
        update_s: seconds of the optimizer, on each rank after its last pass.

    Raises:
        UserError: a schedule that cannot run, or invalid times.
    """
    validate(grid, ticks=False)
    stages = grid.stages
    took = {
        "F": _times("forward_s", forward_s, stages, "stages"),
        "B": _times("backward_s", backward_s, stages, "stages"),
    }
    travel = _times("transfer_s", transfer_s, stages - 1, "boundaries")
    (update,) = _times("update_s", update_s, 1, "updates")
    programs, owners = grid.programs(), grid.owners
    spans: list[list[PassSpan]] = [[] for _ in programs]
    messages: list[Message] = []
    there: dict[tuple[Action, int], float] = {}  # (action, rank) → when the rank has its result
    links: dict[tuple[int, int], float] = {}  # (source, target) → when the link is free again
    going = True
    while going:
        going = False
        for rank, program in enumerate(programs):
            while len(spans[rank]) < len(program):
                action = program[len(spans[rank])]
                waited = [(need, rank) for need in dependencies(action, stages)]
                if not all(key in there for key in waited):
                    break
                clock = spans[rank][-1].end if spans[rank] else 0.0
                start = max([clock, *(there[key] for key in waited)])
                end = there[action, rank] = start + took[action.kind][action.stage]
                spans[rank].append(PassSpan(action, start, end))
                going = True
                then = action.stage + (1 if action.kind == "F" else -1)
                if 0 <= then < stages and owners[then] != rank:
                    leaves = max(end, links.get((rank, owners[then]), 0.0))
                    arrives = leaves + travel[min(action.stage, then)]
                    links[rank, owners[then]] = there[action, owners[then]] = arrives
                    messages.append(Message(action, rank, owners[then], leaves, arrives))
    live = tuple(grid.live(rank) for rank in range(grid.ranks))
    return PipelineTimeline(tuple(map(tuple, spans)), tuple(messages), update, live)


def message_s(nbytes: float | Sequence[float], link: Link) -> list[float]:
    """Return the seconds α + β·bytes of one message over each boundary, as a list; one number of
    bytes gives a list of one."""
    sizes = [nbytes] if isinstance(nbytes, int | float) else nbytes
    return [link.seconds(1, size) for size in sizes]


def _times(name: str, given: float | Sequence[float], n: int, what: str) -> list[float]:
    """Return one time for each of ``n`` items, repeated if ``given`` is one number; raise
    `UserError` for another number of times, or one that is not finite or negative."""
    times = [float(given)] * n if isinstance(given, int | float) else [float(t) for t in given]
    if len(times) != n:
        raise UserError(f"{name}: {len(times)} times for {n} {what}")
    if not all(math.isfinite(t) and t >= 0 for t in times):
        raise UserError(f"{name}: times are finite and not negative; received {times}")
    return times
