"""Closed forms of what each strategy sends, without building its schedule.

n is the number of ranks, S the bytes of the vector, k = ⌈log₂ n⌉, p the largest power of two ≤ n.
The critical path assumes one send port and one receive port per rank; a port carries one message at
a time.

Sources: Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations in
MPICH", Int. J. High Perform. Comput. Appl. 19(1), section 4 (tree, halving_doubling); Patarasuk &
Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations" (ring).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dualml.common.errors import UserError, did_you_mean
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES, StepGroup, Strategy
from dualml.planning.cost.libraries import LIBRARIES

LOCAL_SGD = "local_sgd"
#: Default number of updates between two aggregations of ``local_sgd``.
DEFAULT_SYNC_PERIOD = 10


def names() -> tuple[str, ...]:
    """Return the name of every strategy of dualml, in the order of tables; those of `LIBRARIES` are
    priced only on request."""
    return tuple(dict.fromkeys([*STRATEGIES, LOCAL_SGD, ASYNCHRONOUS]))


def gives_exact_sum(name: str) -> bool:
    """Return whether every rank holds the exact sum over all ranks after each update; False for an
    unknown strategy."""
    return name in LIBRARIES or getattr(STRATEGIES.get(name), "exact", False)


def check(name: str, n: int, nbytes: int = 0, width: int = 1, every: int = 1) -> None:
    """Raise `UserError` for an unknown strategy, fewer than one rank, a negative size or one that
    is not a multiple of ``width``, or ``every`` below 1."""
    known = (*names(), *LIBRARIES)
    if name not in known:
        raise UserError(f"unknown strategy {name!r}{did_you_mean(name, known)}")
    if n < 1:
        raise UserError(f"an aggregation needs at least 1 rank; received n = {n}")
    if width < 1 or nbytes < 0 or nbytes % width:
        raise UserError(
            f"a vector has a whole number of elements of {width} bytes; received {nbytes} bytes"
        )
    if every < 1:
        raise UserError(f"local_sgd aggregates every k ≥ 1 updates; received {every}")


@dataclass(frozen=True)
class Cost:
    """Messages and bytes of one update; fractions if they are spread over several updates.

    Attributes:
        steps, bytes, added: messages, bytes moved and bytes added on the critical path: the factors
            of α, β and γ.
        sent, received, bytes_sent, bytes_received: maxima over the ranks.
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


def stages(name: str, n: int, nbytes: int, width: int = 1, per_node: int = 0) -> list[StepGroup]:
    """Return the steps of one aggregation, with equal steps grouped: at most 2 ⌈log₂ n⌉ + 2 groups,
    none for one rank. For the asynchronous server that is one round of n workers and a further
    rank, the server.

    Args:
        name: name of the strategy.
        n: number of ranks.
        nbytes: S, the bytes of the vector.
        width: bytes of an element, which is never split.
        per_node: ranks per node, for strategies that use it; 0: the strategy chooses.

    Raises:
        UserError: an unknown strategy, n < 1, or a size that is not a multiple of ``width``.
    """
    check(name, n, nbytes, width)
    if n == 1:
        return []
    served = 1 if name == ASYNCHRONOUS else 0  # the server is an additional rank
    rows = _strategy(name).for_nodes(per_node).step_groups(n + served, nbytes // width)
    return [
        replace(s, bytes=s.bytes * width, added=s.added * width, total=s.total * width)
        for s in rows
    ]


def _strategy(name: str) -> Strategy:
    """Return the `Strategy` whose messages are counted as those of ``name``: the ring for one
    aggregation of local_sgd, the parameter server for one round of the asynchronous server, the
    reference algorithm for a native collective, otherwise ``name`` itself."""
    if name in LIBRARIES:
        return LIBRARIES[name]()
    plain = {LOCAL_SGD: "ring", ASYNCHRONOUS: "parameter_server"}.get(name, name)
    return STRATEGIES[STRATEGIES[plain].reference_algorithm or plain]()


def has_closed_form(name: str) -> bool:
    """Return whether a known strategy has a closed form for its steps, and hence a price for any
    number of ranks."""
    return _strategy(name).has_closed_form()


def cost(name: str, n: int, nbytes: int, width: int = 1, every: int = DEFAULT_SYNC_PERIOD) -> Cost:
    """Return messages, bytes and additions of one update; of the asynchronous server those of a
    round of n workers.

    Args:
        name, n: strategy and number of ranks; works for 100,000 ranks.
        nbytes: S, the bytes of the vector.
        width: bytes of an element, which is never split: with 4 the result is exact for float32
            vectors.
        every: for local_sgd, updates between two aggregations; the cost is divided by it.

    Raises:
        UserError: an unknown strategy, n < 1, ``every`` < 1, or a size that is not a multiple of
            ``width``.

    Example:
        >>> ring = cost("ring", 4, 4000)
        >>> ring.steps, ring.bytes_sent, ring.total_bytes
        (6, 6000, 24000)
    """
    check(name, n, nbytes, width, every)
    rows = stages(name, n, nbytes, width)
    served = 1 if name == ASYNCHRONOUS else 0
    busiest = _strategy(name).max_rank_volume(n + served, nbytes // width) if n > 1 else (0, 0)
    messages, elements = busiest
    total_messages = sum(s.times * s.all_messages for s in rows)
    total = sum(s.times * s.total for s in rows)
    one = Cost(
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
        return one
    return Cost(**{field: value / every for field, value in vars(one).items()})
