"""Event simulation of an aggregation: any schedule, message by message, with a clock for each rank.

A message of b bytes takes α + β·b. In a step a rank sends its messages one after the other, to the
nearest rank on the right first, and receives one at a time in the order in which they leave; it can
send and receive at once. It leaves the step when all messages are sent and received and all
additions are done (γ per byte), and waits for nobody else. Every time is a maximum or a sum of
earlier ones, so with `flat` and `shared` no rank becomes faster when another one becomes slower.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dualml.common.errors import UserError
from dualml.parallel.aggregation.schedule import CollectiveSchedule, Transfer
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost.link import Link
from dualml.planning.cost.topology import FLAT, Topology


def check_slow(slow: Straggler, n: int) -> None:
    """Raise `UserError` for a slow rank that does not exist or an invalid slowness."""
    if not 0 <= slow.rank < n:
        raise UserError(f"slow rank {slow.rank}: with n = {n}, ranks go from 0 to {n - 1}")
    if slow.compute <= 0 or slow.latency_s < 0 or slow.jitter_s < 0:
        raise UserError(
            "a slow rank has a compute factor above 0, a latency and a jitter from 0; received "
            f"compute={slow.compute}, latency_s={slow.latency_s}, jitter_s={slow.jitter_s}"
        )
    rate = slow.bandwidth_bytes_per_s
    if rate is not None and rate <= 0:
        raise UserError(f"the bandwidth of a slow rank must be above 0; received {rate}")


@dataclass(frozen=True)
class Simulated:
    """Simulated aggregation; each attribute has one value in seconds per rank.

    Attributes:
        finish: when the rank holds its result.
        compute: before its first message.
        transfer: at least one of its ports is busy, or it adds.
        wait: the rest, until it finishes.
    """

    finish: tuple[float, ...]
    compute: tuple[float, ...]
    transfer: tuple[float, ...]
    wait: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Seconds at which the last rank finishes."""
        return max(self.finish)


def simulate(
    schedule: CollectiveSchedule,
    nbytes: int,
    link: Link,
    *,
    start: Sequence[float] | None = None,
    slow: Straggler | None = None,
    topology: Topology = FLAT,
    width: int = 1,
) -> Simulated:
    """Simulate a schedule for a vector of the whole elements in ``nbytes``; a remainder is ignored.

    Args:
        schedule: who sends what to whom.
        nbytes: S, the bytes of the vector.
        link: α, β, γ; inside a node, for `nodes`.
        start: seconds each rank computes before it takes part; default 0.
        slow: a rank whose messages are slowed; the caller accounts for its computation and jitter
            in ``start``.
        topology: what messages share.
        width: bytes of an element, which is never split.

    Raises:
        UserError: a start for another number of ranks, or an invalid slow rank.
    """
    n = schedule.ranks
    compute = [0.0] * n if start is None else list(map(float, start))
    if len(compute) != n:
        raise UserError(f"start times for {len(compute)} ranks; the schedule has {n}")
    if slow is not None:
        check_slow(slow, n)
    run = _Run(schedule, link, slow, topology, width, nbytes // width, list(compute), [0.0] * n)
    for step in schedule.steps:
        run.step(step)
    wait = [max(0.0, f - c - b) for f, c, b in zip(run.clock, compute, run.busy, strict=True)]
    return Simulated(tuple(run.clock), tuple(compute), tuple(run.busy), tuple(wait))


Seconds = defaultdict[int, float]


@dataclass
class _Run:
    """Clocks and ports of one simulation of a vector of ``length`` elements."""

    schedule: CollectiveSchedule
    link: Link
    slow: Straggler | None
    topology: Topology
    width: int
    length: int
    clock: list[float]
    busy: list[float]
    #: Port → time from which it is free again.
    free: defaultdict[tuple[str, int, int], float] = field(
        default_factory=lambda: defaultdict(float)
    )

    def step(self, step: Sequence[Transfer]) -> None:
        """Advance the clocks, ports and busy seconds, in place, by one step of the schedule."""
        n, clock, free = self.schedule.ranks, self.clock, self.free
        spans = [self.schedule.span(t, self.length) for t in step]
        sizes = [(end - begin) * self.width for begin, end in spans]
        moving, adding = self._crowding(step, sizes)
        leaving = sorted(
            range(len(step)),
            key=lambda i: (clock[step[i].source], (step[i].target - step[i].source) % n),
        )
        sent, got, out_s, in_s, added = (Seconds(float) for _ in range(5))
        arriving: list[tuple[float, int, float]] = []
        for i in leaving:
            a, b = step[i].source, step[i].target
            link = self.topology.link(a, b, self.link)
            waiting = link.alpha_s * self.topology.slowdown(n)
            plain = waiting + link.beta_s_per_byte * sizes[i] * moving
            out = plain + self._extra(a, sizes[i], link)
            port = self._port("out", a, b)
            at = max(clock[a], free[port])
            free[port] = sent[a] = at + out
            out_s[a] += out
            # The receiver's port is busy only for the time the message would take without the
            # sender's slowness: meanwhile it receives what others send.
            arriving.append((max(at + out - plain, clock[b]), i, plain))
        for at, i, plain in sorted(arriving):
            a, b = step[i].source, step[i].target
            took = plain + self._extra(b, sizes[i], self.topology.link(a, b, self.link))
            port = self._port("in", b, a)
            free[port] = done = max(at, free[port]) + took
            got[b] = max(got[b], done)
            in_s[b] += took
            if step[i].op == "add":
                added[b] += self.link.gamma_s_per_byte * sizes[i] * adding
        for r in {*sent, *got}:
            clock[r] = max(sent[r], got[r]) + added[r]
            self.busy[r] += max(out_s[r], in_s[r]) + added[r]

    def _port(self, way: str, rank: int, peer: int) -> tuple[str, int, int]:
        """Return the key of the port of ``rank`` that a message to or from ``peer`` uses, ``way``
        ``out`` or ``in``: the rank's own, or one of its node if ``peer`` is on another node."""
        if self.topology.crosses_nodes(rank, peer):
            return (f"node {way}", *self.topology.port(rank))
        return way, rank, 0

    def _extra(self, rank: int, nbytes: int, link: Link) -> float:
        """Return the extra seconds of a message of ``nbytes`` if ``rank`` is the slow one; 0 for
        any other."""
        if self.slow is None or rank != self.slow.rank:
            return 0.0
        return delay(self.slow, nbytes, link)

    def _crowding(self, step: Sequence[Transfer], sizes: Sequence[int]) -> tuple[float, float]:
        """Return the factors on moving and on adding in this step, on a shared machine; 1 and 1
        with other topologies."""
        out, into, add = Counter[int](), Counter[int](), Counter[int]()
        for t, size in zip(step, sizes, strict=True):
            out[t.source] += size
            into[t.target] += size
            add[t.target] += size if t.op == "add" else 0
        most = max([*out.values(), *into.values()], default=0)
        return (
            self.topology.crowding(most, sum(sizes)),
            self.topology.crowding(max(add.values(), default=0), add.total()),
        )


def delay(slow: Straggler, nbytes: float, link: Link) -> float:
    """Return the seconds that a slow rank adds to one of its messages of ``nbytes`` bytes: its
    latency, and the time that its bandwidth takes longer than the link's."""
    rate = slow.bandwidth_bytes_per_s
    throttled = 0.0 if rate is None else nbytes * max(0.0, 1 / rate - link.beta_s_per_byte)
    return slow.latency_s + throttled
