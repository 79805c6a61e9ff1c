"""Resource usage of the ranks during training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dualml.report.blocks import Block, Column, Item
from dualml.report.columns import number, percent, table
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.store.usage import Usage
from dualml.words import Words, numbers

#: Number of cores kept busy by other processes from which on a machine counts as shared.
OTHERS = 0.25
#: Minimum seconds of a summary that shows the load by other processes.
LONG_S = 2.0


@dataclass(frozen=True)
class Used:
    """Resource usage of an arm on a backend: every rank of its longest trial."""

    arm: str
    backend: str
    trial: Trial
    ranks: tuple[Usage, ...]

    def cell(self, value: Callable[[Usage], float | None], show: Callable[[float], str]) -> str:
        """Return the minimum and the maximum over the ranks as text, one value if they look the
        same."""
        known = [v for rank in self.ranks if (v := value(rank)) is not None]
        if not known:
            return numbers.NONE
        ends = list(dict.fromkeys((show(min(known)), show(max(known)))))
        return " … ".join(ends)

    @property
    def waiting(self) -> float | None:
        """Share of an update that the rank that waits most spends waiting, None if unknown."""
        shares = [r["wait_s"] / r["step_s"] for r in self.trial.ranks if r.get("step_s")]
        return max(shares, default=None)

    @property
    def others(self) -> float | None:
        """Number of cores that other processes kept busy, on the machine where that was most; None
        if unknown."""
        hosts = {rank.host for rank in self.ranks if rank.busy is not None}
        found = []
        for host in hosts:
            own = [rank for rank in self.ranks if rank.host == host]
            busy = max(rank.busy or 0.0 for rank in own)
            found.append(max(0.0, busy - sum(rank.cpu for rank in own)))
        long = min(rank.seconds for rank in self.ranks) >= LONG_S
        return max(found) if found and long else None


def used(run: Run) -> list[Used]:
    """Return the usage of every arm and backend that recorded it."""
    rows = []
    for arm in run.arms:
        for backend in run.backends:
            known = [t for t in run.select(arm, backend) if t.usage]
            if known:
                trial = max(known, key=lambda t: t.usage[0].seconds)
                rows.append(Used(arm, backend, trial, trial.usage))
    return rows


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows = used(run)
    heads: list[str | Column] = ["`arm`", "backend", Column("host", words("usage.host"))]
    cells: list[list[str]] = []
    for key, unit, value, show in QUANTITIES:
        column = [row.cell(value, show) for row in rows]
        if any(cell != numbers.NONE for cell in column):  # not every machine reports every quantity
            heads.append(number(words, key, words(f"usage.{key}"), unit))
            cells.append(column)
    for key, unit in (("waiting", "percent"), ("others", "cores")):
        column = [_share(getattr(row, key), unit) for row in rows]
        if any(cell != numbers.NONE for cell in column):
            heads.append(number(words, key, words(f"usage.{key}"), unit))
            cells.append(column)
    names = [[row.arm, row.backend, _hosts(row)] for row in rows]
    lines = [[*name, *line] for name, line in zip(names, zip(*cells, strict=True), strict=True)]
    yield from table(words, "usage", heads, lines)


def _device(key: str) -> Callable[[Usage], float | None]:
    return lambda usage: None if usage.device is None else getattr(usage.device, key)


def _hosts(row: Used) -> str:
    return " ".join(dict.fromkeys(rank.host for rank in row.ranks))


def _share(x: float | None, unit: str) -> str:
    return percent(x) if unit == "percent" and x is not None else numbers.quantity(x, 2)


def _mib(x: float) -> str:
    return numbers.quantity(round(x / 2**20))


def _mb(x: float) -> str:
    return numbers.quantity(x / 1e6, 2)


def _two(x: float) -> str:
    return numbers.quantity(x, 2)


def _whole(x: float) -> str:
    return numbers.quantity(round(x))


QUANTITIES: tuple[tuple[str, str, Callable[[Usage], float | None], Callable[[float], str]], ...] = (
    ("cpu", "cores", lambda u: u.cpu, _two),
    ("cpu_peak", "cores", lambda u: u.cpu_peak, _two),
    ("memory", "memory", lambda u: u.memory, _mib),
    ("sent", "mb_per_second", lambda u: u.sent or None, _mb),
    ("received", "mb_per_second", lambda u: u.received or None, _mb),
    ("collectives", "percent", lambda u: u.collectives, percent),
    ("device_busy", "percent", _device("utilisation"), percent),
    ("device_memory", "memory", _device("memory"), _mib),
    ("device_power", "watts", _device("power"), _whole),
    ("device_temperature", "celsius", _device("temperature"), _whole),
    ("power", "watts", lambda u: u.power, _whole),
    ("temperature", "celsius", lambda u: u.temperature, _whole),
)  # fmt: skip


def findings(run: Run, words: Words) -> Sequence[Item]:
    """Return whether the machine was shared, and the overhead of sampling."""
    notes, rows = Notes(words, "usage", "table-usage"), used(run)
    shared = [row for row in rows if (row.others or 0.0) > OTHERS]
    if shared:
        worst = max(shared, key=lambda row: row.others or 0.0)
        cores = max(rank.cores for rank in worst.ranks)
        notes.warn("shared", n=len(shared), of=len(rows), arm=worst.arm, backend=worst.backend,
                   others=worst.others, cores=cores)  # fmt: skip
    if rows:
        notes.say("cost", share=max(rank.sampling for row in rows for rank in row.ranks))
    return notes


TOPIC = Topic("usage", 910, evidence, findings)
