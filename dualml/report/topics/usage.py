"""Resource usage of the ranks during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.experiment.store.usage import Usage
from dualml.report.blocks import Column
from dualml.report.columns import PLACE, Columns, number, percent
from dualml.report.notes import Notes
from dualml.report.topics import table_section

#: Number of cores kept busy by other processes from which on a machine counts as shared.
MIN_OTHER_CORES = 0.25
#: Minimum seconds of a summary that shows the load by other processes.
MIN_SUMMARY_S = 2.0


@dataclass(frozen=True)
class ArmUsage:
    """Resource usage of an arm on a backend: every rank of its longest trial."""

    arm: str
    backend: str
    trial: Trial
    ranks: tuple[Usage, ...]

    def cell(self, value: Callable[[Usage], float | None], show: Callable[[float], str]) -> str:
        """Return the minimum and the maximum over the ranks as text, one text if they look the
        same; a dash if no rank has the value.

        Args:
            value: usage of a rank → the value, or None.
            show: formats a value.
        """
        known = [v for rank in self.ranks if (v := value(rank)) is not None]
        if not known:
            return numbers.NO_VALUE
        ends = list(dict.fromkeys((show(min(known)), show(max(known)))))
        return " … ".join(ends)

    @property
    def max_wait_share(self) -> float | None:
        """Share of an update (0 to 1) that the rank that waits most spends waiting, None if
        unknown."""
        shares = [r["wait_s"] / r["step_s"] for r in self.trial.ranks if r.get("step_s")]
        return max(shares, default=None)

    @property
    def foreign_cores(self) -> float | None:
        """Number of cores that other processes kept busy, on the machine where that was most; None
        if unknown, or if a rank was observed for less than `MIN_SUMMARY_S`."""
        hosts = {rank.host for rank in self.ranks if rank.busy is not None}
        found = []
        for host in hosts:
            own = [rank for rank in self.ranks if rank.host == host]
            busy = max(rank.busy or 0.0 for rank in own)
            found.append(max(0.0, busy - sum(rank.cpu for rank in own)))
        long = min(rank.seconds for rank in self.ranks) >= MIN_SUMMARY_S
        return max(found) if found and long else None


def arm_usages(run: RunData) -> list[ArmUsage]:
    """Return the usage of every arm and backend that recorded it."""
    rows = []
    for arm in run.arms:
        for backend in run.backends:
            known = [t for t in run.select(arm, backend) if t.usage]
            if known:
                trial = max(known, key=lambda t: t.usage[0].seconds)
                rows.append(ArmUsage(arm, backend, trial, trial.usage))
    return rows


def columns(run: RunData, words: Messages, rows: Sequence[ArmUsage]) -> Columns[ArmUsage]:
    """Return the columns of resource usage, without quantities that no machine reported."""
    quantities: dict[str, tuple[str, Callable[[ArmUsage], str]]] = {
        key: (unit, partial(ArmUsage.cell, value=value, show=show))
        for key, unit, value, show in QUANTITIES
    }
    quantities["waiting"] = "percent", lambda row: _format_share(row.max_wait_share, "percent")
    quantities["others"] = "cores", lambda row: _format_share(row.foreign_cores, "cores")
    return {
        **PLACE,
        Column("host", words("usage.host")): _hosts,
        **{
            number(words, key, words(f"usage.{key}"), unit): read
            for key, (unit, read) in quantities.items()
            # not every machine reports every quantity
            if any(read(row) != numbers.NO_VALUE for row in rows)
        },
    }


def _device_value(key: str) -> Callable[[Usage], float | None]:
    """Return a function that reads a value of the device's sample, None for ranks without a
    device."""
    return lambda usage: None if usage.device is None else getattr(usage.device, key)


def _hosts(row: ArmUsage) -> str:
    """Return the names of the machines of an arm's ranks, each once."""
    return " ".join(dict.fromkeys(rank.host for rank in row.ranks))


def _format_share(x: float | None, unit: str) -> str:
    """Format a fraction as percent if that is the unit, else a number with two digits; None as a
    dash."""
    return percent(x) if unit == "percent" and x is not None else numbers.quantity(x, 2)


def _mib(x: float) -> str:
    """Format bytes as whole MiB, without the unit."""
    return numbers.quantity(round(x / 2**20))


def _mb(x: float) -> str:
    """Format bytes as MB (10⁶ bytes) with two digits, without the unit."""
    return numbers.quantity(x / 1e6, 2)


def _format_two_digits(x: float) -> str:
    """Format a number with two digits."""
    return numbers.quantity(x, 2)


def _format_whole(x: float) -> str:
    """Format a number rounded to an integer."""
    return numbers.quantity(round(x))


QUANTITIES: tuple[tuple[str, str, Callable[[Usage], float | None], Callable[[float], str]], ...] = (
    ("cpu", "cores", lambda u: u.cpu, _format_two_digits),
    ("cpu_peak", "cores", lambda u: u.cpu_peak, _format_two_digits),
    ("memory", "memory", lambda u: u.memory, _mib),
    ("sent", "mb_per_second", lambda u: u.sent or None, _mb),
    ("received", "mb_per_second", lambda u: u.received or None, _mb),
    ("collectives", "percent", lambda u: u.collectives, percent),
    ("device_busy", "percent", _device_value("utilisation"), percent),
    ("device_memory", "memory", _device_value("memory"), _mib),
    ("device_power", "watts", _device_value("power"), _format_whole),
    ("device_temperature", "celsius", _device_value("temperature"), _format_whole),
    ("power", "watts", lambda u: u.power, _format_whole),
    ("temperature", "celsius", lambda u: u.temperature, _format_whole),
)


def findings(notes: Notes, run: RunData, rows: Sequence[ArmUsage]) -> None:
    """Add a warning if other processes kept cores busy, with the arm where these were most, and the
    most cores that sampling the usage took on a rank."""
    shared = [row for row in rows if (row.foreign_cores or 0.0) > MIN_OTHER_CORES]
    if shared:
        worst = max(shared, key=lambda row: row.foreign_cores or 0.0)
        cores = max(rank.cores for rank in worst.ranks)
        notes.add_warning(
            "shared",
            n=len(shared),
            of=len(rows),
            arm=worst.arm,
            backend=worst.backend,
            others=worst.foreign_cores,
            cores=cores,
        )
    if rows:
        notes.add("cost", share=max(rank.sampling for row in rows for rank in row.ranks))


TOPIC = table_section("usage", 910, reads=arm_usages, columns=columns, findings=findings)
