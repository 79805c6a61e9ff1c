"""The collectives alone, as measured: times and bytes by strategy and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from dualml.report import machine, ranks
from dualml.store.run import Run, Trial
from dualml.words import numbers


@dataclass(frozen=True)
class Traffic:
    """Of one call: messages and bytes of the rank that sends most, and bytes of all ranks."""

    messages: float
    nbytes: float
    total: float


@dataclass(frozen=True)
class Measured:
    """All measurements of one backend among n ranks.

    Attributes:
        rows: (strategy, bytes) → the row of ``collectives.json``; of several seeds the medians.
        copies: bytes → seconds to copy them in memory.
        threads: the ranks are threads of one process, which send nothing over any interface.
    """

    backend: str
    n: int
    rows: Mapping[tuple[str, int], Mapping[str, Any]]
    copies: Mapping[int, float]
    threads: bool = False

    @property
    def strategies(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.rows))

    @property
    def sizes(self) -> list[int]:
        return sorted({size for _, size in self.rows})

    def seconds(self, strategy: str, size: int) -> float | None:
        row = self.rows.get((strategy, size))
        return float(row["seconds"]) if row else None

    @property
    def exact(self) -> list[str]:
        """The strategies that compete: they give every rank the sum."""
        return [name for name in self.strategies if ranks.exact(name)]

    def competing(self, size: int) -> dict[str, float]:
        """Seconds of the exact strategies."""
        return {n: t for n in self.exact if (t := self.seconds(n, size)) is not None}

    def fastest(self, size: int) -> str | None:
        timed = self.competing(size)
        return min(timed, key=lambda name: timed[name], default=None)

    def ranges(self) -> list[tuple[str, int, int]]:
        """Ranges of sizes with one fastest strategy: its name, the first and the last size."""
        best = [(name, size) for size in self.sizes if (name := self.fastest(size)) is not None]
        grouped = ((name, [*group]) for name, group in groupby(best, key=lambda pair: pair[0]))
        return [(name, group[0][1], group[-1][1]) for name, group in grouped]

    def close(self) -> int:
        """Sizes at which another strategy's quartiles reach down to those of the fastest."""
        near = 0
        for size in self.sizes:
            timed = self.competing(size)
            rows = [self.rows[name, size] for name in sorted(timed, key=lambda name: timed[name])]
            near += any(row["low"] <= rows[0]["high"] for row in rows[1:])
        return near

    def crossing(self, few: str, little: str) -> tuple[int, int] | None:
        """The last size at which ``few`` (messages) is faster, and the first from which ``little``
        (bytes) is at every larger one; None without a change."""
        faster = [
            (size, a < b)
            for size in self.sizes
            if (a := self.seconds(few, size)) is not None
            and (b := self.seconds(little, size)) is not None
        ]
        flips = [(a, b) for (a, was), (b, now) in pairwise(faster) if was != now]
        return flips[0] if len(flips) == 1 and faster[0][1] else None

    def counted(self, strategy: str, size: int) -> Traffic | None:
        """As the ranks counted it; None where a native collective made the messages."""
        row = self.rows.get((strategy, size)) or {}
        traffic = row.get("traffic") or ()
        sent = [(int(t["sent"]), int(t["bytes_sent"])) for t in traffic]
        if not any(nbytes for _, nbytes in sent) or any(t.get("calls") for t in traffic):
            return None
        messages, nbytes = (max(values) for values in zip(*sent, strict=True))
        return Traffic(messages, nbytes, sum(b for _, b in sent))

    def closed(self, strategy: str, size: int) -> Traffic | None:
        """By the closed form; None for a strategy that has none here."""
        from dualml.cost.closed import cost
        from dualml.errors import UserError

        try:
            known = cost(strategy, self.n, size, 4)
        except UserError:
            return None
        return Traffic(known.sent, known.bytes_sent, known.total_bytes)

    def wire_ratio(self, strategy: str, size: int) -> float | None:
        """Bytes on the wire over those of the closed form."""
        wire = (self.rows.get((strategy, size)) or {}).get("wire_bytes")
        closed = self.closed(strategy, size)
        if self.threads or not numbers.known(wire) or closed is None or not closed.total:
            return None
        return wire / closed.total


def measured(run: Run) -> list[Measured]:
    """By backend and number of ranks."""
    trials: dict[tuple[str, int], list[Trial]] = {}
    for t in run.trials:
        if t.ok and t.collectives and t.collectives["rows"]:
            trials.setdefault((t.backend, t.world_size), []).append(t)
    order = sorted(trials, key=lambda key: (run.backends.index(key[0]), key[1]))
    return [_together(*key, trials[key]) for key in order]


def _together(backend: str, n: int, trials: Sequence[Trial]) -> Measured:
    rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    copies: dict[int, list[float]] = {}
    for t in trials:
        file = t.collectives or {}
        for row in file["rows"]:
            rows.setdefault((str(row["strategy"]), int(row["bytes"])), []).append(row)
        for size, seconds in (file.get("copy_s") or {}).items():
            copies.setdefault(int(size), []).append(float(seconds))
    timed = ("seconds", "low", "high")
    return Measured(
        backend,
        n,
        {k: {**v[0], **{key: median(r[key] for r in v) for key in timed}} for k, v in rows.items()},
        {size: median(v) for size, v in copies.items()},
        trials[0].framework == "numpy",
    )


def at_once(run: Run, every: Sequence[Measured]) -> list[Measured]:
    """Of each backend the measurement among as many ranks as all can run at the same time on cores
    of their own, the most there are; where none can, among the fewest."""
    frameworks = [m for m in every if m.backend in ranks.frameworks(run)] or list(every)
    sizes = sorted({m.n for m in frameworks})
    cores = [machine.cores(run, m.backend) or 1 for m in frameworks]
    fit = [n for n in sizes if n <= min(cores, default=1)]
    chosen = fit[-1] if fit else sizes[0]
    return [m for m in frameworks if m.n == chosen]
