"""Offloading to host memory or disk: where the bytes are, and the time of moving them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.common.words import Messages
from dualml.experiment.store.manifest import OffloadTraffic
from dualml.experiment.store.run import RunData, Serial
from dualml.experiment.verdict import worst_comparison
from dualml.parallel.memory import estimate_offload_footprint
from dualml.parallel.offload.estimates import estimate_offload_volume
from dualml.report import ranks, verdicts
from dualml.report.closed_memory import mib, sharding_units
from dualml.report.columns import PLACE, Columns, verdict
from dualml.report.notes import Notes
from dualml.report.results import ArmResult
from dualml.report.topics import table_section


@dataclass(frozen=True, eq=False)
class OffloadResult(ArmResult):
    """Offloaded memory and traffic of an arm on a backend.

    Attributes:
        ranks: counters of the ranks that offload most, of all seeds; first the rank that copies
            most to the device.
    """

    ranks: Sequence[OffloadTraffic]

    @cached_property
    def device(self) -> int | None:
        """Bytes of weights, gradients, state and buckets on the device, of the rank that has most;
        None if not measured."""
        counted = (r for trial in self.trials for r in trial.device_memory)
        return max((r.weights + r.gradients + r.state + r.buckets for r in counted), default=None)

    @cached_property
    def differences(self) -> dict[str, int] | None:
        """Counted bytes minus the closed form, by counter, where they differ
        (`closed_form_differences`); None if the closed form is unknown."""
        return closed_form_differences(self.run, self.arm, self.backend, self.ranks[0])

    @cached_property
    def judged(self) -> Serial | None:
        """The worst comparison with one rank over the seeds; None without one."""
        own = (self.arm, self.backend)
        return worst_comparison(s for s in self.run.serial if (s.arm, s.backend) == own)

    def total(self, *names: str) -> int:
        """Return the sum of the counters ``names``, fields of `OffloadTraffic` in bytes or
        nanoseconds, over `ranks`."""
        return sum(getattr(rank, name) for rank in self.ranks for name in names)

    def per_update(self, name: str) -> float:
        """Return the traffic counter ``name`` of one rank in one update, in bytes or nanoseconds:
        the mean over all updates of `ranks`."""
        return self.total(name) / self.total("updates")

    def transfer_rate(self, spent: str, *names: str) -> float | None:
        """Return the bytes per second of a transfer: the counters ``names`` in bytes, divided by
        the counter ``spent`` in nanoseconds; None if no time was spent on it."""
        nanoseconds = self.total(spent)
        return 1e9 * self.total(*names) / nanoseconds if nanoseconds else None

    @property
    def busy(self) -> float:
        """Seconds of reading and writing in an update."""
        return (self.per_update("read_ns") + self.per_update("write_ns")) / 1e9

    @property
    def waiting(self) -> float:
        """Seconds of an update in which the training waits for transfers."""
        return self.per_update("wait_ns") / 1e9

    @property
    def overlapped_share(self) -> float | None:
        """Share of the time of reading and writing during which the training did not wait, None
        without any."""
        busy = self.total("read_ns", "write_ns")
        return max(0.0, 1 - self.total("wait_ns") / busy) if busy else None


def offload_results(run: RunData) -> list[OffloadResult]:
    """Return the results of offloading arms, on every backend where a rank counted updates."""
    results = []
    for arm, backend in ranks.successful_places(run, run.arms):
        counted = [r for t in run.select(arm, backend) for r in t.offload if r.updates]
        if counted:
            most = max(counted, key=lambda r: (r.host + r.disk, r.to_device))
            full = [r for r in counted if (r.host, r.disk) == (most.host, most.disk)]
            full.sort(key=lambda r: -r.to_device)
            results.append(OffloadResult(run, arm, backend, full))
    return results


def closed_form_differences(
    run: RunData, arm: str, backend: str, rank: OffloadTraffic
) -> dict[str, int] | None:
    """Return counter of ``rank`` (``host``, ``disk``, ``to_device``, ``to_host``, ``read``,
    ``written``) → its bytes minus the closed form, only where they differ; None if the closed form
    is unknown."""
    settings, units = run.settings[arm], sharding_units(run, arm)
    dtype = str(run.environment.get(backend, {}).get("dtype", ""))
    if units is None or settings.offload is None or dtype not in ("float32", "float64"):
        return None
    width, n, slots = np.dtype(dtype).itemsize, settings.world_size, len(settings.rule.state_keys)
    held = estimate_offload_footprint(units, n, settings.offload, slots)
    form = estimate_offload_volume(
        units, n, settings.offload, slots, rank.rounds, rank.updates, rank.made
    )
    want = {name: getattr(held, name) for name in ("host", "disk")}
    want |= {name: getattr(form, name) for name in ("to_device", "to_host", "read", "written")}
    found = {name: getattr(rank, name) - width * n for name, n in want.items()}
    return {name: n for name, n in found.items() if n}


def columns(
    run: RunData, words: Messages, every: Sequence[OffloadResult]
) -> Columns[OffloadResult]:
    """Return the columns of bytes on device, host and disk, of transfers and of their time."""
    return {
        **PLACE,
        "offload": lambda r: format_offload(run, r.arm),
        "on_device:memory": lambda r: mib(r.device),
        "in_host:memory": lambda r: mib(r.ranks[0].host),
        "on_disk:memory": lambda r: mib(r.ranks[0].disk),
        "to_device:memory": lambda r: mib(r.per_update("to_device")),
        "to_host:memory": lambda r: mib(r.per_update("to_host")),
        "copied:gb_per_second": lambda r: r.transfer_rate("copy_ns", "to_device", "to_host"),
        "read:gb_per_second": lambda r: r.transfer_rate("read_ns", "read"),
        "written:gb_per_second": lambda r: r.transfer_rate("write_ns", "written"),
        "io:milliseconds": lambda r: r.busy if r.total("read") else None,
        "io_wait:milliseconds": lambda r: r.waiting if r.total("read") else None,
        "hidden:percent": lambda r: r.overlapped_share,
        "step:milliseconds": lambda r: r.step,
        "verdict?": lambda r: r.judged and verdict(r.judged, words, why=False),
    }


def format_offload(run: RunData, arm: str) -> str:
    """Return those offload settings of an arm that differ from the defaults, as the experiment file
    states them, e.g. ``key=value, key=value``; empty for an arm that does not offload."""
    asked = run.settings[arm].offload
    named = {} if asked is None else asked.model_dump(exclude_defaults=True)
    return ", ".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in named.items()
    )


def findings(notes: Notes, run: RunData, every: Sequence[OffloadResult]) -> None:
    """Add whether bytes equal the closed form, how much of the transfers was overlapped, and
    whether results stayed the same."""
    words = notes.words
    known = [(r, r.differences) for r in every if r.differences is not None]
    wrong = [
        words("offload.off", arm=r.arm, backend=r.backend, parts=words.join(texts))
        for r, off in known
        if (texts := [f"{words(f'offload.{key}')} {n:+,} B" for key, n in off.items()])
    ]
    if wrong:
        notes.add_warning("off", n=len(wrong), of=len(known), values=wrong)
    elif known:
        notes.add("exact", len(known), n=len(known))
    for r in every:
        if r.overlapped_share is not None:
            asked = run.settings[r.arm].offload
            overlaps = asked is not None and asked.overlap
            key = "waited" if not overlaps else "hidden" if r.overlapped_share else "nothing"
            times = {"share": r.overlapped_share, "busy": r.busy, "wait": r.waiting}
            notes.add(key, arm=r.arm, backend=r.backend, **times)
    verdicts.add_verdicts(notes, [r.judged for r in every if r.judged is not None])


def uses_offload(run: RunData) -> bool:
    """Return whether any arm offloads."""
    return any(run.settings[arm].offload is not None for arm in ranks.training_arms(run))


TOPIC = table_section(
    "offload",
    13,
    reads=offload_results,
    columns=columns,
    findings=findings,
    priority=lambda run: 43 * uses_offload(run),
    when=uses_offload,
)
