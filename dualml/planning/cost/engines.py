"""Schedules of a communication engine's collectives, known from its source and checked on the wire.

The schedules are for costs only: they say who sends how much to whom and what waits for what, not
which sum is where. A collective that is missing here is priced by its textbook algorithm.

gloo's ring all_reduce is the textbook's. Its other collectives, by its source (github.com/
facebookincubator/gloo, gloo/{broadcast,reduce,gather,allgather}.cc) and by the counters of network
interfaces (benchmarks/network.py):

- broadcast is a binomial tree whose ranks send to all their children at once: the children share
  the outgoing bandwidth, and all finish when the last one does. In the schedule, the child with the
  largest subtree comes last.
- reduce is a ring reduce-scatter, after which each rank sends its part to the root.
- all_gather goes around the ring. Two ranks send and receive on one connection, on which the
  "ready" reply of the later one waits behind half of its own vector: half a vector's time is lost.
- torch's reduce_scatter on gloo is an all_reduce of which a rank keeps its part.
"""

from __future__ import annotations

from collections.abc import Callable

from dualml.parallel.aggregation import CollectiveSchedule, Ring, Transfer
from dualml.parallel.aggregation.schedule import ReceiveOp

Steps = list[tuple[Transfer, ...]]


def schedule(engine: str, strategy: str, n: int) -> CollectiveSchedule | None:
    """Return the schedule of a strategy's collectives on n ranks as the library ``engine``
    (``gloo``) executes them; None if it is the textbook's, the engine is unknown, or there is one
    rank."""
    make = ENGINES.get(engine, {}).get(strategy)
    return make(n) if make is not None and n > 1 else None


def broadcast(n: int, chunks: int) -> Steps:
    """Return the steps by which n ranks receive rank 0's vector of ``chunks`` chunks, along a
    binomial tree."""
    parents = {r: r & ~(1 << (r.bit_length() - 1)) for r in range(1, n)}
    steps, waiting = Steps(), dict(parents)
    has = {0}
    while waiting:
        # The nearest child has the largest subtree, and so comes last.
        ready = [max((c for c, p in waiting.items() if p == r), default=0) for r in sorted(has)]
        step = tuple(_full_transfer(parents[c], c, chunks, "put") for c in ready if c)
        for t in step:
            del waiting[t.target]
        has |= {t.target for t in step}
        steps.append(step)
    return steps


def gather(n: int, chunks: int) -> Steps:
    """Return a list of the one step in which ranks 1 … n − 1 send their whole vectors of ``chunks``
    chunks to rank 0, which adds them."""
    return [tuple(_full_transfer(r, 0, chunks, "add") for r in range(1, n))]


def reduce(n: int) -> Steps:
    """Return the steps of a reduction to rank 0 of a vector in n chunks: a ring reduce-scatter, and
    one in which the ranks send their chunks to rank 0."""
    scattered = Ring().schedule(n).steps[: n - 1]
    return [*scattered, tuple(Transfer(r, 0, r, r, "put") for r in range(1, n))]


def all_gather(n: int, size: int) -> Steps:
    """Return the steps of an all-gather of vectors that are as long as the first ``size`` chunks:
    n − 1 around the ring, or three for two ranks, which lose the time of half a vector."""
    if n == 2:
        early, late = (0, size // 2 - 1), (size // 2, size - 1)
        return [
            (Transfer(1, 0, *early, "add"),),
            (Transfer(1, 0, *late, "add"), Transfer(0, 1, *early, "add")),
            (Transfer(0, 1, *late, "add"),),
        ]
    return [tuple(Transfer(r, (r + 1) % n, 0, size - 1, "add") for r in range(n))] * (n - 1)


def _full_transfer(source: int, target: int, chunks: int, then: ReceiveOp) -> Transfer:
    """Return the transfer of all chunks of a vector, which the target adds (``then="add"``) or
    stores (``"put"``)."""
    return Transfer(source, target, 0, chunks - 1, then)


def _all_gather_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule of an all-reduce by all-gather, in which n ranks exchange whole
    vectors."""
    return CollectiveSchedule(n, 2, tuple(all_gather(n, 2)))


def _reduce_broadcast_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule of an all-reduce of n ranks by a reduction to rank 0 and a broadcast."""
    return CollectiveSchedule(n, n, (*reduce(n), *broadcast(n, n)))


def _parameter_server_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule of an all-reduce of n ranks by a gather to rank 0 and a broadcast."""
    return CollectiveSchedule(n, 1, (*gather(n, 1), *broadcast(n, 1)))


def _reduce_scatter_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule of a ring all-reduce of n ranks, by which the engine reduce-scatters,
    followed by an all-gather of the ranks' parts, each 2 of the 2n chunks."""
    chunks = 2 * n  # two chunks are a rank's part
    ring = [
        tuple(Transfer(t.source, t.target, 2 * t.first, 2 * t.first + 1, t.op) for t in step)
        for step in Ring().schedule(n).steps
    ]
    return CollectiveSchedule(n, chunks, (*ring, *all_gather(n, 2)))


ENGINES: dict[str, dict[str, Callable[[int], CollectiveSchedule]]] = {
    "gloo": {
        "all_gather": _all_gather_schedule,
        "reduce_broadcast": _reduce_broadcast_schedule,
        "parameter_server": _parameter_server_schedule,
        "reduce_scatter_all_gather": _reduce_scatter_schedule,
    }
}
