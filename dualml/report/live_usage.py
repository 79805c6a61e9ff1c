"""Resource usage of the ranks that are running now, read from the last lines they wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages, numbers
from dualml.experiment.store.usage import NAME, DeviceSample, Sample, counter_rate, last_samples
from dualml.report.blocks import Table
from dualml.report.columns import Columns, make_table

#: A rank whose last line is older has stopped: a long trial writes one about every minute.
FRESH_S = 90.0
#: A rank whose trial ended longer ago has stopped: another trial would have begun.
OVER_S = 5.0
MB, MIB = 1e6, 2**20


@dataclass(frozen=True)
class RankUsage:
    """The latest usage sample of a rank, and the previous one of the same process (None: there is
    none). ``trial`` has the names of its folders: arm, backend, ``seedN``."""

    run: Path
    trial: tuple[str, str, str]
    rank: int
    now: Sample
    before: Sample | None

    @property
    def device(self) -> DeviceSample:
        """Usage of its device; nothing is known without one."""
        return self.now.device or DeviceSample()

    def rate(self, key: str) -> float | None:
        """Return the increase of the counter ``key``, a field of `Sample`, per second between both
        samples, None without a previous sample."""
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
    per_rank: Columns[RankUsage] = {
        "run?": lambda s: runs and str(s.run),
        "trial": lambda s: " ".join(s.trial),
        "rank:none": lambda s: str(s.rank),
        "host": lambda s: s.now.host,
        "phase": lambda s: s.now.phase + (f" {s.now.done}/{s.now.total}" if s.now.total else ""),
        "cpu:cores?": lambda s: s.rate("cpu_s"),
        "memory:memory?": lambda s: s.now.memory / MIB,
        "sent:mb_per_second?": lambda s: _scaled(s.rate("sent"), 1 / MB),
        "received:mb_per_second?": lambda s: _scaled(s.rate("received"), 1 / MB),
        "collectives:percent?": lambda s: _percent(s.rate("collectives_s")),
        "device_busy:percent?": lambda s: _percent(s.device.utilisation),
        "device_memory:memory?": lambda s: _scaled(s.device.memory, 1 / MIB),
        "device_power:watts?": lambda s: s.device.power,
        "device_temperature:celsius?": lambda s: s.device.temperature,
    }
    yield make_table(words, "usage_ranks", seen, per_rank, words("usage.ranks"), "usage.{}")
    machines = {s.now.host: s.now for s in sorted(seen, key=lambda s: s.now.at)}
    per_machine: Columns[Sample] = {
        "host": lambda now: now.host,
        "busy:cores?": lambda now: now.busy,
        "cores:cores?": lambda now: now.cores,
        "used:memory?": lambda now: now.used / MIB,
        "power:watts?": lambda now: now.power,
        "temperature:celsius?": lambda now: now.temperature,
    }
    caption = words("usage.machines")
    yield make_table(words, "usage_machines", machines.values(), per_machine, caption, "usage.{}")


def _scaled(x: float | None, factor: float) -> float | None:
    """Return ``x * factor``, None for None."""
    return None if x is None else x * factor


def _percent(share: float | None) -> str:
    """Return a fraction as a percentage with as many digits as other quantities."""
    return numbers.quantity(_scaled(share, 100))
