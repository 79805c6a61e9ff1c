"""Predicted seconds of one update: by event simulation for a few ranks, by closed forms for
many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

from dualml.common.errors import UserError
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES, StepGroup
from dualml.parallel.aggregation import strategy as find
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost.bandwidth import Bandwidths, bandwidths
from dualml.planning.cost.closed_form import (
    DEFAULT_SYNC_PERIOD,
    LOCAL_SGD,
    check,
    has_closed_form,
    stages,
)
from dualml.planning.cost.engines import schedule as engine_schedule
from dualml.planning.cost.libraries import LIBRARIES
from dualml.planning.cost.link import Link
from dualml.planning.cost.simulate import Simulated, check_slow, delay, simulate
from dualml.planning.cost.topology import FLAT, Topology

#: Ranks up to which every message is simulated.
EVENTS = 64
#: Total messages to simulate if delays are drawn; minimum and maximum number of draws.
MESSAGE_BUDGET, MIN_DRAWS, MAX_DRAWS = 20_000, 4, 200


@dataclass(frozen=True)
class Prediction:
    """Predicted time of one update of one strategy, for ``nbytes`` bytes on ``n`` ranks.

    Attributes:
        seconds: until the last rank has finished computing and aggregating.
        compute_s: computation of a rank that is not slow, on a `shared` machine with its waits for
            a core.
        how: ``events`` or ``closed``.
        ranks: breakdown of each rank's time if events were simulated, else None; for local_sgd that
            of one whole round of k updates.
    """

    strategy: str
    n: int
    nbytes: int
    seconds: float
    compute_s: float
    how: Literal["events", "closed"]
    ranks: Simulated | None = None

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth in bytes per second (`dualml.planning.cost.bandwidth`); None if the
        strategy is no all-reduce, nothing is sent, or the time includes computation."""
        return None if self._rates is None else self._rates.algbw

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes per second: what each rank's link would carry under a ring
        algorithm; None as for `algbw`."""
        return None if self._rates is None else self._rates.busbw

    @property
    def _rates(self) -> Bandwidths | None:
        """Algorithm and bus bandwidth in bytes per second; None with computation, or for no
        all-reduce."""
        if self.compute_s:
            return None
        return bandwidths(self.strategy, self.n, self.nbytes, self.seconds)


def predict(
    strategy: str,
    n: int,
    nbytes: int,
    link: Link,
    compute_s: float = 0.0,
    *,
    slow: Straggler | None = None,
    topology: Topology = FLAT,
    width: int = 1,
    every: int = DEFAULT_SYNC_PERIOD,
    seed: int = 0,
    events: int = EVENTS,
    engine: str = "",
) -> Prediction:
    """Predict the seconds of one update: compute, then aggregate.

    Without a slow rank, events and closed forms give the same number for `flat` and `shared`. For
    `nodes` the closed forms take each step to be as long as its busiest port, which is close. A
    slow rank is assumed to delay every step it takes part in: exact for the ring, mostly somewhat
    too long for the others, and rough for `nodes`. Jitter delays each computation of the slow rank:
    events average over drawn delays, closed forms use the mean delay.

    local_sgd computes ``every`` updates, then aggregates by ring; the seconds are divided by
    ``every``. parameter_server_async is priced by the bounds of operational analysis (Denning &
    Buzen 1978, "The Operational Analysis of Queueing Network Models", section 6): n updates take as
    long as the workers need without queues, or as the server needs for n, whichever is longer.

    Args:
        strategy: name of the strategy.
        n: number of ranks.
        nbytes: S, the bytes of the vector.
        link: α, β, γ; inside a node, for `nodes`.
        compute_s: seconds a rank computes before it aggregates, on a core of its own.
        slow: a rank that is slow; None: all ranks are equal.
        topology: what messages share.
        width: bytes of an element, which is never split.
        every: updates between two aggregations of local_sgd.
        seed: seed of the jitter, the same for every strategy.
        events: number of ranks up to which every message is simulated.
        engine: engine whose collectives a native strategy uses, up to ``events`` ranks, if
            `dualml.planning.cost.engines` knows it; else the textbook's.

    Raises:
        UserError: an unknown strategy, n < 1, ``every`` < 1, an invalid size, a slow rank that does
            not exist or is slow in an invalid way, compute_s < 0.
    """
    check(strategy, n, nbytes, width, every)
    if not compute_s >= 0:
        raise UserError(f"a rank computes 0 seconds or more; received {compute_s}")
    if slow is not None:
        check_slow(slow, n)
    computing = compute_s * topology.slowdown(n)
    share = every if strategy == LOCAL_SGD else 1
    name = "ring" if strategy == LOCAL_SGD else strategy

    def make_prediction(
        seconds: float, how: Literal["events", "closed"], ranks: Simulated | None = None
    ) -> Prediction:
        return Prediction(strategy, n, nbytes, seconds / share, computing, how, ranks)

    if strategy == ASYNCHRONOUS:
        return make_prediction(
            _async_server_seconds(n, nbytes, link, computing, slow, topology), "closed"
        )
    first = own = computing * share  # when the other ranks and the slow one begin
    if slow is not None:
        own *= slow.compute
    if name in LIBRARIES or (n > events and has_closed_form(name)):
        rows = stages(name, n, nbytes, width, topology.per_node)
        times = [topology.seconds(s, n, link) for s in rows]
        if slow is None:
            return make_prediction(first + sum(times), "closed")
        own += share * slow.jitter_s
        if n == 1:
            return make_prediction(own, "closed")
        plain = name if name in LIBRARIES else STRATEGIES[name].reference_algorithm or name
        slowed = _StragglerModel(n, rows, times, link, topology, slow, first, max(0.0, own - first))
        return make_prediction(slowed.seconds(plain), "closed")
    start = [first] * n
    if slow is not None:
        start[slow.rank] = own
    sent = engine_schedule(engine, name, n)
    schedule = sent or find(name).for_nodes(topology.per_node).schedule(n)
    jitter = slow.jitter_s if slow is not None else 0.0
    messages = max(1, sum(map(len, schedule.steps)))
    draws = min(MAX_DRAWS, max(MIN_DRAWS, MESSAGE_BUDGET // messages)) if jitter else 1

    def simulate_draw(number: int) -> Simulated:
        late = list(start)
        if slow is not None and jitter:
            from dualml.common.seeds import make_generator

            noise = make_generator(seed, "jitter", number)
            late[slow.rank] += float(noise.exponential(jitter, share).sum())
        return simulate(
            schedule, nbytes, link, start=late, slow=slow, topology=topology, width=width
        )

    runs = [simulate_draw(number) for number in range(draws)]
    return make_prediction(sum(run.seconds for run in runs) / draws, "events", _mean(runs))


def _mean(runs: Sequence[Simulated]) -> Simulated:
    """Return the mean of several simulations of as many ranks, rank by rank and attribute by
    attribute."""
    if len(runs) == 1:
        return runs[0]
    fields = zip(*(astuple(run) for run in runs), strict=True)
    return Simulated(
        *(tuple(sum(values) / len(runs) for values in zip(*ranks, strict=True)) for ranks in fields)
    )


@dataclass(frozen=True)
class _StragglerModel:
    """Closed-form delay that a slow rank adds to a sequence of stages.

    Attributes:
        rows, times: the stages, and the seconds of each without the slow rank.
        first, lateness: when the other ranks begin, and how much later the slow rank begins.
    """

    n: int
    rows: Sequence[StepGroup]
    times: Sequence[float]
    link: Link
    topology: Topology
    slow: Straggler
    first: float
    lateness: float

    def extra_message_seconds(self, stage: StepGroup) -> float:
        """Return the extra seconds that the straggler adds to one of its messages in the steps
        ``stage``."""
        return delay(self.slow, stage.bytes / stage.messages, self.link)

    def seconds(self, name: str) -> float:
        """Return the seconds from the start of the update, its computation included, until the last
        rank has finished; ``name`` is the strategy whose messages are sent."""
        total, late, r = sum(self.times), self.lateness, self.slow.rank
        if name == "tree":
            return self.first + self._tree_seconds()
        if name == "parameter_server":
            return self.first + self._server_seconds()
        if name == "neighbour":
            return (
                self.first
                + late
                + total
                + self.rows[0].messages * self.extra_message_seconds(self.rows[0])
            )
        p = 1 << (self.n.bit_length() - 1)
        for stage, seconds in zip(self.rows, self.times, strict=True):
            outside = stage.kind in ("in", "out")
            if outside and self.n - p <= r < p:
                # It waits while others send their vectors, which hides some of its lateness.
                late = max(0.0, late - seconds) if stage.kind == "in" else late
            elif outside:
                total += self.extra_message_seconds(stage)
            elif stage.kind != "swap" or r < p:
                total += stage.times * self.extra_message_seconds(stage)
        return self.first + late + total

    def _tree_seconds(self) -> float:
        """Return the seconds of the tree, up and down, from when the other ranks begin: the longer
        of the path through the slow rank and the path without it."""
        k, r, extra = len(self.times) // 2, self.slow.rank, self.extra_message_seconds(self.rows[0])
        up, down = self.times[:k], self.times[k:][::-1]
        level = (r & -r).bit_length() - 1 if r else k  # the step in which r sends to its parent
        children = [j for j in range(level) if r + (1 << j) < self.n]

        def path_seconds(steps: Sequence[float]) -> float:
            below = sum(steps[j] + extra for j in children)
            return below + (steps[level] + extra + sum(steps[level + 1 :]) if r else 0.0)

        return max(sum(up), self.lateness + path_seconds(up)) + max(sum(down), path_seconds(down))

    def _server_seconds(self) -> float:
        """Return the seconds of the parameter server, from when the other ranks begin: a slow
        server delays every message, a slow worker only its own, which may come last."""
        m, r, (push, pull), extra = (
            self.n - 1,
            self.slow.rank,
            self.times,
            self.extra_message_seconds(self.rows[0]),
        )
        if r == 0:
            return self.lateness + push + pull + 2 * m * extra
        free = Link(self.link.alpha_s, self.link.beta_s_per_byte)
        moving = self.topology.seconds(self.rows[0], self.n, free)
        last = max(moving * (m - 1) / m, self.lateness + extra) + moving / m
        return last + (push - moving) + max(pull, pull * r / m + extra)


def _async_server_seconds(
    n: int, nbytes: int, link: Link, computing: float, slow: Straggler | None, topology: Topology
) -> float:
    """Return the mean seconds in which the asynchronous server receives n updates, as many as there
    are workers, by operational bounds."""
    late = computing * slow.compute + slow.jitter_s if slow else computing
    if n == 1:
        return late
    far = topology.inter if topology.kind == "nodes" and n > topology.count else None
    wire = far or link
    message, adding = wire.seconds(1, nbytes), link.gamma_s_per_byte * nbytes
    cycle = own = computing + 2 * message + adding  # of a normal worker, and of the slow one
    if slow is not None:
        own = late + 2 * (message + delay(slow, nbytes, wire)) + adding
    free = n / ((n - 1) / cycle + 1 / own) if min(cycle, own) > 0 else 0.0
    served = n * (message + adding)
    if topology.kind == "shared":  # the cores move every byte in and out
        served = max(served, n * (2 * wire.seconds(0, nbytes) + adding) / topology.count)
    return max(free, served)
