"""Resource usage of the ranks that are running now, read from the last lines they wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages, numbers
from dualml.experiment.store.usage import NAME, DeviceSample, Sample, counter_rate, last_samples
from dualml.report.blocks import Column, Table
from dualml.report.columns import number

#: A rank whose last line is older has stopped: a long trial writes one about every minute.
FRESH_S = 90.0
#: A rank whose trial ended longer ago has stopped: another trial would have begun.
OVER_S = 5.0
MB = 1e6


@dataclass(frozen=True)
class RankUsage:
    """The latest usage sample of a rank, and the previous one of the same process (None: there is
    none)."""

    run: Path
    trial: tuple[str, str, str]
    rank: int
    now: Sample
    before: Sample | None

    def rate(self, key: str) -> float | None:
        """Return the increase of the counter ``key`` per second between both samples, None without
        a previous sample."""
        return None if self.before is None else counter_rate(self.before, self.now, key)

    def describe(self) -> JsonObject:
        """Return the sample as JSON values for ``dualml top --json``: run, arm, backend, seed,
        rank, the fields of the `Sample`, and its rates: ``cpu`` in cores, ``sent_s`` and
        ``received_s`` in bytes per second, ``collectives`` as a fraction of time; None without a
        previous sample."""
        arm, backend, seed = self.trial
        rates = {
            "cpu": "cpu_s",
            "sent_s": "sent",
            "received_s": "received",
            "collectives": "collectives_s",
        }
        return {
            "run": str(self.run),
            "arm": arm,
            "backend": backend,
            "seed": int(seed.removeprefix("seed")),
            "rank": self.rank,
            **self.now.describe(),
            **{name: self.rate(key) for name, key in rates.items()},
        }


def active_ranks(run: Path, fresh: float = FRESH_S) -> list[RankUsage]:
    """Return the latest sample of every running rank of a run, in the trial it wrote to last. A
    rank whose trial ended more than `OVER_S` seconds ago is not running.

    Args:
        run: the run folder.
        fresh: seconds after which a rank whose last line is older counts as stopped.
    """
    newest: dict[int, tuple[float, Path]] = {}
    for path in run.glob(f"trials/*/*/*/{NAME.format('*')}"):
        number = path.name.split(".")[0].removeprefix("rank")
        try:
            changed = path.stat().st_mtime
        except OSError:
            continue
        if number.isdecimal() and time.time() - changed < fresh:
            rank = int(number)
            newest[rank] = max(newest.get(rank, (0.0, path)), (changed, path))
    seen = []
    for rank, (_, path) in sorted(newest.items()):
        if samples := last_samples(path):
            now = samples[-1]
            if now.last and time.time() - now.at > OVER_S:
                continue
            before = next((s for s in reversed(samples[:-1]) if s.pid == now.pid), None)
            arm, backend, seed = path.parent.parts[-3:]
            seen.append(RankUsage(run, (arm, backend, seed), rank, now, before))
    return seen


def tables(seen: Sequence[RankUsage], words: Messages, *, runs: bool = False) -> Iterator[Table]:
    """Yield a table with a row per rank and one with a row per machine; nothing without running
    ranks.

    Args:
        seen: the latest usage of every rank.
        words: the messages.
        runs: whether the first column names the run of each rank.
    """
    if not seen:
        return
    heads = [Column("run", words("usage.run"))] if runs else []
    heads += [
        Column("trial", words("usage.trial")),
        number(words, "rank", words("usage.rank"), "none"),
        Column("host", words("usage.host")),
        Column("phase", words("usage.phase")),
        *(number(words, key, words(f"usage.{key}"), unit) for key, unit in QUANTITIES),
    ]
    rows = [[*([str(s.run)] if runs else []), *_rank(s)] for s in seen]
    yield Table("usage_ranks", words("usage.ranks"), *_drop_empty_columns(heads, rows))
    machines = {s.now.host: s.now for s in sorted(seen, key=lambda s: s.now.at)}
    heads = [
        Column("host", words("usage.host")),
        *(number(words, key, words(f"usage.{key}"), unit) for key, unit in MACHINE_COLUMNS),
    ]
    rows = [[host, *map(numbers.quantity, _machine(now))] for host, now in machines.items()]
    yield Table("usage_machines", words("usage.machines"), *_drop_empty_columns(heads, rows))


QUANTITIES = (
    ("cpu", "cores"),
    ("memory", "memory"),
    ("sent", "mb_per_second"),
    ("received", "mb_per_second"),
    ("collectives", "percent"),
    ("device_busy", "percent"),
    ("device_memory", "memory"),
    ("device_power", "watts"),
    ("device_temperature", "celsius"),
)
#: Columns of the table of machines: key and unit.
MACHINE_COLUMNS = (
    ("busy", "cores"),
    ("cores", "cores"),
    ("used", "memory"),
    ("power", "watts"),
    ("temperature", "celsius"),
)


def _rank(s: RankUsage) -> list[str]:
    """Return the table row of a running rank as texts: trial, rank, host, phase with progress, then
    its `QUANTITIES` (memory in MiB, traffic in MB/s, shares in percent)."""
    device = s.now.device or DeviceSample()
    done = "" if not s.now.total else f" {s.now.done}/{s.now.total}"
    values = (
        s.rate("cpu_s"),
        s.now.memory / 2**20,
        _scaled(s.rate("sent"), 1 / MB),
        _scaled(s.rate("received"), 1 / MB),
        _scaled(s.rate("collectives_s"), 100),
        _scaled(device.utilisation, 100),
        _scaled(device.memory, 2**-20),
        device.power,
        device.temperature,
    )
    return [
        " ".join(s.trial),
        str(s.rank),
        s.now.host,
        f"{s.now.phase}{done}",
        *map(numbers.quantity, values),
    ]


def _machine(now: Sample) -> list[float | None]:
    """Return the values of `MACHINE_COLUMNS` in their order; memory in MiB."""
    return [now.busy, now.cores, now.used / 2**20, now.power, now.temperature]


def _scaled(x: float | None, factor: float) -> float | None:
    """Return ``x * factor``, None for None."""
    return None if x is None else x * factor


def _drop_empty_columns(
    heads: list[Column], rows: list[list[str]]
) -> tuple[list[Column], list[list[str]]]:
    """Return the table without the columns that have only dashes (`numbers.NO_VALUE`)."""
    kept = [k for k in range(len(heads)) if any(row[k] != numbers.NO_VALUE for row in rows)]
    return [heads[k] for k in kept], [[row[k] for k in kept] for row in rows]
