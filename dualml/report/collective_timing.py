"""Measured collectives: seconds and bytes by strategy and size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from dualml.common.words import numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import machine, ranks
from dualml.report.measures import drop_missing, sort_by_value

if TYPE_CHECKING:
    from dualml.planning.cost.bandwidth import Bandwidths


class CollectiveTraffic(NamedTuple):
    """Traffic of one call: the most messages and the most bytes that a rank sends, and the bytes
    that all ranks send together."""

    messages: Any
    nbytes: Any
    total: Any


@dataclass(frozen=True)
class CollectiveMeasurements:
    """All measurements of one backend with n ranks.

    Attributes:
        rows: (strategy, bytes) → the row of ``collectives.json``; of several seeds the medians.
        copies: bytes → seconds to copy them in memory.
        threads: whether the ranks are threads of one process, which use no network interface.
    """

    backend: str
    n: int
    rows: Mapping[tuple[str, int], Mapping[str, Any]]
    copies: Mapping[int, float]
    threads: bool = False

    @property
    def strategies(self) -> list[str]:
        """Names of the measured strategies, each once, in the order of measurement."""
        return list(dict.fromkeys(name for name, _ in self.rows))

    @property
    def sizes(self) -> list[int]:
        """Measured vector sizes in bytes, each once, ascending."""
        return sorted({size for _, size in self.rows})

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest size in bytes."""
        return self.sizes[0], self.sizes[-1]

    @property
    def exact(self) -> list[str]:
        """The measured strategies that give every rank the exact sum, which are compared with each
        other."""
        return [name for name in self.strategies if ranks.is_exact(name)]

    def seconds(self, strategy: str, size: int) -> float | None:
        """Return the seconds of one call of a strategy with ``size`` bytes, None if it was not
        measured."""
        row = self.rows.get((strategy, size))
        return float(row["seconds"]) if row else None

    def bandwidths(self, strategy: str, size: int) -> Bandwidths | None:
        """Return algorithm and bus bandwidth in bytes per second as nccl-tests define them; None if
        the strategy is no all-reduce, or was not measured at this size in bytes."""
        from dualml.planning.cost.bandwidth import bandwidths

        seconds = self.seconds(strategy, size)
        return None if seconds is None else bandwidths(strategy, self.n, size, seconds)

    def competing(self, size: int) -> dict[str, float]:
        """Return strategy → seconds of the exact strategies that were measured at a size in bytes,
        the fastest first."""
        return sort_by_value(drop_missing({name: self.seconds(name, size) for name in self.exact}))

    def fastest(self, size: int) -> str | None:
        """Return the fastest exact strategy at a size in bytes, None if none was measured."""
        return next(iter(self.competing(size)), None)

    def ranges(self) -> list[tuple[str, int, int]]:
        """Return the ranges of neighbouring measured sizes with one fastest strategy: its name, the
        first and the last size in bytes. A strategy that is fastest in several ranges occurs
        several times."""
        best = [(name, size) for size in self.sizes if (name := self.fastest(size)) is not None]
        grouped = ((name, [*group]) for name, group in groupby(best, key=lambda pair: pair[0]))
        return [(name, group[0][1], group[-1][1]) for name, group in grouped]

    def count_close_sizes(self) -> int:
        """Return the number of sizes at which the quartiles of another exact strategy overlap those
        of the fastest."""
        near = 0
        for size in self.sizes:
            rows = [self.rows[name, size] for name in self.competing(size)]
            near += any(row["low"] <= rows[0]["high"] for row in rows[1:])
        return near

    def counted_traffic(self, strategy: str, size: int) -> CollectiveTraffic | None:
        """Return the traffic that the ranks counted in one call; None if it was not measured, if no
        rank sent a byte, and for native collectives, whose messages are unseen."""
        row = self.rows.get((strategy, size)) or {}
        traffic = row.get("traffic") or ()
        sent = [(int(t["sent"]), int(t["bytes_sent"])) for t in traffic]
        if not any(nbytes for _, nbytes in sent) or any(t.get("calls") for t in traffic):
            return None
        messages, nbytes = (max(values) for values in zip(*sent, strict=True))
        return CollectiveTraffic(messages, nbytes, sum(b for _, b in sent))

    def closed_form_traffic(self, strategy: str, size: int) -> CollectiveTraffic | None:
        """Return the traffic of one call with ``size`` bytes of float32 by the closed form; None
        for a strategy without one."""
        from dualml.common.errors import UserError
        from dualml.planning.cost.closed_form import cost

        try:
            moved = cost(strategy, self.n, size, 4)
        except UserError:
            return None
        return CollectiveTraffic(moved.sent, moved.bytes_sent, moved.total_bytes)

    def wire_ratio(self, strategy: str, size: int) -> float | None:
        """Return the bytes on the wire relative to all ranks' bytes by the closed form; None if
        either is unknown, or the ranks are threads of one process."""
        wire = (self.rows.get((strategy, size)) or {}).get("wire_bytes")
        closed = self.closed_form_traffic(strategy, size)
        if self.threads or not numbers.is_finite_number(wire) or closed is None or not closed.total:
            return None
        return float(wire / closed.total)


def find_crossover(
    sizes: Iterable[int],
    latency_optimal: Callable[[int], float | None],
    bandwidth_optimal: Callable[[int], float | None],
) -> tuple[int, int] | None:
    """Return the last size at which the latency-optimal strategy (few messages) is faster, and the
    next one, from which the bandwidth-optimal one (few bytes) always is. None unless that is the
    only change of the faster one.

    Args:
        sizes: sizes in bytes, ascending.
        latency_optimal, bandwidth_optimal: size → seconds; sizes where either is None are skipped.
    """
    faster = [
        (size, a < b)
        for size in sizes
        if (a := latency_optimal(size)) is not None and (b := bandwidth_optimal(size)) is not None
    ]
    flips = [(a, b) for (a, was), (b, now) in pairwise(faster) if was != now]
    return flips[0] if len(flips) == 1 and faster[0][1] else None


def collective_measurements(run: RunData) -> list[CollectiveMeasurements]:
    """Return the measurements of the successful trials, one for each backend and number of ranks,
    in this order; trials of different seeds or arms are combined."""
    trials: dict[tuple[int, int], list[Trial]] = {}
    for t in run.trials:
        if t.ok and t.collectives and t.collectives["rows"]:
            at = (run.backends.index(t.backend), t.world_size)
            trials.setdefault(at, []).append(t)
    return [_combine_seeds(trials[at]) for at in sorted(trials)]


def _combine_seeds(trials: Sequence[Trial]) -> CollectiveMeasurements:
    """Return the measurements of several trials with the same backend and number of ranks as one:
    the medians of all times; other values, such as the traffic, are those of the first trial."""
    rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    copies: dict[int, list[float]] = {}
    for t in trials:
        file = t.collectives or {}
        for row in file["rows"]:
            rows.setdefault((str(row["strategy"]), int(row["bytes"])), []).append(row)
        for size, seconds in (file.get("copy_s") or {}).items():
            copies.setdefault(int(size), []).append(float(seconds))
    timed = ("seconds", "low", "high")
    return CollectiveMeasurements(
        trials[0].backend,
        trials[0].world_size,
        {k: {**v[0], **{key: median(r[key] for r in v) for key in timed}} for k, v in rows.items()},
        {size: median(v) for size, v in sorted(copies.items())},
        trials[0].framework == "numpy",
    )


def uncrowded_measurements(
    run: RunData, every: Sequence[CollectiveMeasurements]
) -> list[CollectiveMeasurements]:
    """Return the measurements of the backends whose speed matters (`ranks.timed_backends`; of all,
    if none of these measured) with one common number of ranks: the largest for which every rank has
    a core of its own on each, or the smallest measured one. A backend without this number is left
    out. ``every`` must not be empty."""
    frameworks = [m for m in every if m.backend in ranks.timed_backends(run)] or list(every)
    sizes = sorted({m.n for m in frameworks})
    cores = min(machine.cores(run, m.backend) or 1 for m in frameworks)
    chosen = max([n for n in sizes if n <= cores], default=sizes[0])
    return [m for m in frameworks if m.n == chosen]
