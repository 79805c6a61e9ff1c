"""Closed forms: what each strategy sends, without building its schedule.

n is the number of ranks, S the bytes of the vector, k = ⌈log₂ n⌉, p the largest power of two ≤ n.
The critical path is that of ranks with one send port and one receive port each; a port carries one
message at a time.

Sources: Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations in
MPICH", Int. J. High Perform. Comput. Appl. 19(1), section 4 (tree, halving_doubling); Patarasuk &
Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations" (ring).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dualml.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.communicator.parts import start_of
from dualml.errors import UserError, nearest

#: A native collective → the strategy whose schedule the textbook gives it.
ALIKE = {"all_reduce": "ring", "reduce_scatter_all_gather": "ring", "reduce_broadcast": "tree"}
LOCAL_SGD = "local_sgd"
#: Updates between two aggregations of local_sgd.
EVERY = 10


def names() -> tuple[str, ...]:
    """Every strategy this room can price, in the order of tables."""
    return tuple(dict.fromkeys([*STRATEGIES, LOCAL_SGD, ASYNCHRONOUS]))


def exact(name: str) -> bool:
    """Every rank holds the sum over all ranks after each update."""
    return name not in (LOCAL_SGD, ASYNCHRONOUS) and STRATEGIES[name].exact


def check(name: str, n: int, nbytes: int = 0, width: int = 1, every: int = 1) -> None:
    """Raises `UserError` for a strategy, a number of ranks or a size that cannot be."""
    if name not in names():
        raise UserError(f"unknown strategy {name!r}{nearest(name, names())}")
    if n < 1:
        raise UserError(f"an aggregation needs at least 1 rank; received n = {n}")
    if width < 1 or nbytes < 0 or nbytes % width:
        raise UserError(
            f"a vector has a whole number of elements of {width} bytes; received {nbytes} bytes"
        )
    if every < 1:
        raise UserError(f"local_sgd aggregates every k ≥ 1 updates; received {every}")


@dataclass(frozen=True)
class Stage:
    """One step, or ``times`` alike ones in a row.

    Attributes:
        kind, distance: who sends to whom: ``shift`` (r to r + distance; 0: each distance once),
            ``up`` and ``down`` (binomial tree), ``swap`` (r with r xor distance), ``in`` and
            ``out`` (ranks from ``distance`` on with the rank ``distance`` below), ``push`` and
            ``pull`` (all with rank 0), ``both`` (the neighbours on a ring).
        messages, bytes: on the busiest port of one step.
        added: bytes the busiest rank adds up in one step.
        total: bytes of all ranks in one step.
        all_messages: messages of all ranks in one step.
    """

    kind: str
    distance: int
    messages: int
    bytes: int
    added: int
    total: int
    all_messages: int
    times: int = 1


@dataclass(frozen=True)
class Cost:
    """Messages and bytes of one update; fractions where they are spread over several updates.

    Attributes:
        steps, bytes, added: messages, bytes moved and bytes added on the critical path: the factors
            of α, β and γ.
        sent, received, bytes_sent, bytes_received: of the rank with the most of each.
        mean_messages, mean_bytes: sent by an average rank, which receives as many.
        total_messages, total_bytes: sent by all ranks.
    """

    steps: float
    bytes: float
    added: float
    sent: float
    received: float
    bytes_sent: float
    bytes_received: float
    mean_messages: float
    mean_bytes: float
    total_messages: float
    total_bytes: float


def _ring(n: int, length: int) -> list[Stage]:
    largest = -(-length // n)  # its way around the ring is the critical path
    return [Stage("shift", 1, 1, largest, added, length, n, times=n - 1) for added in (largest, 0)]


def _all_gather(n: int, length: int) -> list[Stage]:
    return [Stage("shift", 0, 1, length, length, n * length, n, times=n - 1)]


def _tree(n: int, length: int) -> list[Stage]:
    up, down, distance = [], [], 1
    while distance < n:
        m = len(range(distance, n, 2 * distance))
        up.append(Stage("up", distance, 1, length, length, m * length, m))
        down.append(Stage("down", distance, 1, length, 0, m * length, m))
        distance *= 2
    return up + down[::-1]


def _halving_doubling(n: int, length: int) -> list[Stage]:
    p = 1 << (n.bit_length() - 1)
    m = n - p
    halving, doubling, distance = [], [], p // 2
    while distance:
        block = start_of(length, p, distance)
        halving.append(Stage("swap", distance, 1, block, block, distance * length, p))
        doubling.append(Stage("swap", distance, 1, block, 0, distance * length, p))
        distance //= 2
    begin = [Stage("in", p, 1, length, length, m * length, m)] if m else []
    end = [Stage("out", p, 1, length, 0, m * length, m)] if m else []
    return begin + halving + doubling[::-1] + end


def _parameter_server(n: int, length: int) -> list[Stage]:
    m = n - 1
    return [
        Stage("push", 0, m, m * length, m * length, m * length, m),
        Stage("pull", 0, m, m * length, 0, m * length, m),
    ]


def _neighbour(n: int, length: int) -> list[Stage]:
    m = min(n - 1, 2)
    return [Stage("both", 1, m, m * length, m * length, n * m * length, n * m)]


_STAGES: dict[str, Callable[[int, int], list[Stage]]] = {
    "ring": _ring,
    "all_gather": _all_gather,
    "tree": _tree,
    "halving_doubling": _halving_doubling,
    "parameter_server": _parameter_server,
    "neighbour": _neighbour,
    # One aggregation of local_sgd; one round of the asynchronous server, seen from its port.
    LOCAL_SGD: _ring,
    ASYNCHRONOUS: lambda n, length: _parameter_server(n + 1, length),
}


def stages(name: str, n: int, nbytes: int, width: int = 1) -> list[Stage]:
    """The steps of one aggregation, alike ones together; at most 2 ⌈log₂ n⌉ + 2 of them.

    Args:
        name: a strategy.
        n: ranks.
        nbytes: S, the bytes of the vector.
        width: bytes of an element, which is never cut in two.

    Raises:
        UserError: an unknown strategy, n < 1, or a size that is no multiple of ``width``.
    """
    check(name, n, nbytes, width)
    if n == 1:
        return []
    found = _STAGES[ALIKE.get(name, name)](n, nbytes // width)
    return [
        replace(s, bytes=s.bytes * width, added=s.added * width, total=s.total * width)
        for s in found
    ]


def _busiest(name: str, n: int, length: int) -> tuple[int, int]:
    """Messages and elements that the busiest rank sends; it receives as many."""
    if n == 1:
        return 0, 0
    if name in ("ring", LOCAL_SGD):
        # All chunks twice, but for two that follow one another: at best two of the short ones.
        longer = length % n
        return 2 * (n - 1), 2 * length - 2 * (length // n) - (1 if n - longer == 1 else 0)
    if name == "halving_doubling":
        p = 1 << (n.bit_length() - 1)
        k, extra = p.bit_length() - 1, 1 if n > p else 0
        blocks = sum(start_of(length, p, 1 << i) for i in range(1, k))
        return 2 * k + extra, length * (1 + extra) + blocks
    each = {
        "all_gather": n - 1,
        "tree": (n - 1).bit_length(),
        "parameter_server": n - 1,
        "neighbour": min(n - 1, 2),
        ASYNCHRONOUS: n,
    }[name]
    return each, each * length


def cost(name: str, n: int, nbytes: int, width: int = 1, every: int = EVERY) -> Cost:
    """Messages, bytes and additions of one update.

    Args:
        name, n: a strategy, and ranks; also 100,000.
        nbytes: S, the bytes of the vector.
        width: bytes of an element, which is never cut in two: 4 gives to the byte what float32
            vectors cost.
        every: for local_sgd, updates between two aggregations; its cost is divided by it.

    Raises:
        UserError: an unknown strategy, n < 1, or a size that is no multiple of ``width``.

    Example:
        >>> ring = cost("ring", 4, 4000)
        >>> ring.steps, ring.bytes_sent, ring.total_bytes
        (6, 6000, 24000)
    """
    check(name, n, nbytes, width, every)
    rows = stages(name, n, nbytes, width)
    messages, elements = _busiest(ALIKE.get(name, name), n, nbytes // width)
    total_messages = sum(s.times * s.all_messages for s in rows)
    total = sum(s.times * s.total for s in rows)
    found = Cost(
        steps=sum(s.times * s.messages for s in rows),
        bytes=sum(s.times * s.bytes for s in rows),
        added=sum(s.times * s.added for s in rows),
        sent=messages,
        received=messages,
        bytes_sent=elements * width,
        bytes_received=elements * width,
        mean_messages=total_messages / n,
        mean_bytes=total / n,
        total_messages=total_messages,
        total_bytes=total,
    )
    if name != LOCAL_SGD:
        return found
    return Cost(**{field: value / every for field, value in vars(found).items()})
