"""Offloading to host memory or disk: where the bytes are, and the time of moving them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dualml.common.words import Messages
from dualml.experiment.store.manifest import DeviceMemory, OffloadTraffic
from dualml.experiment.store.run import RunData, Serial
from dualml.experiment.verdict import worst_comparison
from dualml.parallel.memory import estimate_offload_footprint
from dualml.parallel.offload.estimates import estimate_offload_volume
from dualml.parallel.offload.traffic import OffloadCounters
from dualml.report import ranks, verdicts
from dualml.report.closed_memory import mib, sharding_units
from dualml.report.columns import PLACE, Columns, verdict
from dualml.report.notes import Notes
from dualml.report.results import ArmResult
from dualml.report.topics import table_section


@dataclass(frozen=True)
class OffloadResult:
    """Offloaded memory and traffic of an arm on a backend, for the rank that offloads most; the
    traffic is summed over its seeds.

    Attributes:
        device: bytes of weights, gradients, state and buckets on the device.
        differences: counted bytes minus the closed form, by name, where they differ; None if the
            closed form is unknown.
    """

    arm: str
    backend: str
    device: int | None
    host: int
    disk: int
    traffic: OffloadCounters
    differences: dict[str, int] | None
    judged: Serial | None

    def per_update(self, name: str) -> float:
        """Return the traffic counter ``name``, in bytes or nanoseconds, divided by the number of
        updates."""
        return float(getattr(self.traffic, name)) / self.traffic.updates

    def rate(self, name: str, spent: str) -> float | None:
        """Return the bytes per second of a transfer: the counter ``name`` in bytes, divided by the
        counter ``spent`` in nanoseconds; None if no time was spent on it."""
        nanoseconds = getattr(self.traffic, spent)
        return 1e9 * getattr(self.traffic, name) / nanoseconds if nanoseconds else None

    @property
    def copy_rate(self) -> float | None:
        """Bytes per second of copies between device and host, None if no time was spent on them."""
        t = self.traffic
        return 1e9 * (t.to_device + t.to_host) / t.copy_ns if t.copy_ns else None

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
        busy = self.traffic.read_ns + self.traffic.write_ns
        return max(0.0, 1 - self.traffic.wait_ns / busy) if busy else None


def offload_results(run: RunData) -> list[OffloadResult]:
    """Return the results of offloading arms, on every backend where a rank counted updates."""
    return [
        row
        for arm in run.arms
        for backend in run.backends
        if (row := _row(run, arm, backend)) is not None
    ]


def _row(run: RunData, arm: str, backend: str) -> OffloadResult | None:
    """Return the result of an offloading arm on a backend, with the bytes of the fullest rank and
    the traffic of all ranks and seeds with as many; None if no rank counted updates."""
    counted = [rank for trial in run.select(arm, backend) for rank in trial.offload]
    counted = [rank for rank in counted if rank.updates]
    if not counted:
        return None
    most = max(counted, key=lambda rank: (rank.host + rank.disk, rank.to_device))
    traffic = OffloadCounters()
    for rank in counted:
        if (rank.host, rank.disk) == (most.host, most.disk):
            traffic.add(rank_traffic(rank))
    memory = [r for trial in run.select(arm, backend) for r in trial.device_memory]
    seeds = [s for s in run.serial if (s.arm, s.backend) == (arm, backend)]
    return OffloadResult(
        arm,
        backend,
        max(map(device_bytes, memory), default=None),
        most.host,
        most.disk,
        traffic,
        closed_form_differences(run, arm, backend, most),
        worst_comparison(seeds),
    )


def device_bytes(memory: DeviceMemory) -> int:
    """Return the bytes that stay on the device: weights, gradients, optimizer state and buckets."""
    return memory.weights + memory.gradients + memory.state + memory.buckets


def rank_traffic(rank: OffloadTraffic) -> OffloadCounters:
    """Return the counters of one rank's transfers."""
    return OffloadCounters(
        **{field.name: getattr(rank, field.name) for field in fields(OffloadCounters)}
    )


def closed_form_differences(
    run: RunData, arm: str, backend: str, rank: OffloadTraffic
) -> dict[str, int] | None:
    """Return name → counted bytes minus the closed form, only where they differ; None if it is
    unknown."""
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
        "in_host:memory": lambda r: mib(r.host),
        "on_disk:memory": lambda r: mib(r.disk),
        "to_device:memory": lambda r: mib(r.per_update("to_device")),
        "to_host:memory": lambda r: mib(r.per_update("to_host")),
        "copied:gb_per_second": lambda r: r.copy_rate,
        "read:gb_per_second": lambda r: r.rate("read", "read_ns"),
        "written:gb_per_second": lambda r: r.rate("written", "write_ns"),
        "io:milliseconds": lambda r: r.busy if r.traffic.read else None,
        "io_wait:milliseconds": lambda r: r.waiting if r.traffic.read else None,
        "hidden:percent": lambda r: r.overlapped_share,
        "step:milliseconds": lambda r: ArmResult(run, r.arm, r.backend).step,
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
