"""``rankR.usage.jsonl``: samples of the resources that a rank's process uses on its machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from pydantic import ValidationError

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, open_to_read, read_bytes
from dualml.experiment.store.jsonfile import Count, Number, Record

NAME = "rank{}.usage.jsonl"
#: Number of bytes at the end of a file that contain its last samples.
TAIL = 2**13


class DeviceSample(Record):
    """State of a GPU or an NPU: ``utilisation`` from 0 to 1, memory in bytes, power in watts,
    temperature in °C; null: unknown."""

    name: str = ""
    utilisation: Number | None = None
    memory: Count | None = None
    power: Number | None = None
    temperature: Number | None = None


class Sample(Record):
    """One sample of a rank's process and its machine.

    Attributes:
        at: seconds since 1970.
        host, pid: machine and process; cumulative numbers start again when ``pid`` changes.
        phase, done, total: activity and its progress, in updates or measurements.
        cpu_s: cumulative processor seconds.
        memory: resident bytes.
        sent, received: cumulative bytes over its open TCP connections.
        collectives_s: cumulative seconds inside collectives, waiting and transferring.
        cores: cores of the machine; ``busy``: mean number of busy cores since the last sample,
            whatever process used them.
        used: bytes of the machine's memory in use.
        power, temperature: power and temperature of its processors, in watts and °C.
        sampling_s: cumulative processor seconds spent on sampling.
        last: whether the trial has ended.
    """

    at: Number
    host: str
    pid: Count
    last: bool = False
    phase: str = ""
    done: Count | None = None
    total: Count | None = None
    cpu_s: Number
    memory: Count
    sent: Count | None = None
    received: Count | None = None
    collectives_s: Number | None = None
    cores: Count
    busy: Number | None = None
    used: Count
    power: Number | None = None
    temperature: Number | None = None
    device: DeviceSample | None = None
    sampling_s: Number


class Usage(Record):
    """Summary of a rank's samples: means and peaks over all of them.

    Attributes:
        seconds: seconds that the samples cover.
        cpu, cpu_peak: mean and peak number of cores that the process kept busy.
        memory: peak bytes.
        sent, received: bytes per second.
        collectives: fraction of the time inside collectives.
        cores, busy: cores of the machine, and how many of them were busy.
        power, temperature: mean power in watts and peak temperature in °C of its processors.
        device: means, but peaks for memory and temperature.
        sampling: cores that sampling took.
    """

    host: str
    seconds: Number
    cpu: Number
    cpu_peak: Number
    memory: Count
    sent: Number | None = None
    received: Number | None = None
    collectives: Number | None = None
    cores: Count
    busy: Number | None = None
    power: Number | None = None
    temperature: Number | None = None
    device: DeviceSample | None = None
    sampling: Number


def usage_path(trial: Path, rank: int) -> Path:
    """Return the path of a rank's samples of resource usage in the folder of a trial."""
    return trial / NAME.format(rank)


def encode_sample(sample: Sample) -> bytes:
    """Encode a sample as one line of JSON, with its newline, to append to the rank's file."""
    return json.dumps(sample.describe(), separators=(",", ":")).encode() + b"\n"


def parse_samples(lines: Iterable[bytes]) -> list[Sample]:
    """Return the samples of resource usage in these lines, without those that cannot be parsed: a
    line may be incomplete, and monitoring must never stop a caller."""
    samples = []
    for text in lines:
        try:
            samples.append(Sample.model_validate_json(text))
        except ValidationError:
            continue
    return samples


def read_usage(trial: Path, rank: int) -> list[Sample]:
    """Read all samples of a rank; empty if there is no file, or none can be read."""
    try:
        return parse_samples(read_bytes(usage_path(trial, rank), MAX_TEXT_BYTES).splitlines())
    except (OSError, UserError):
        return []


def last_samples(path: Path) -> list[Sample]:
    """Return the last few samples of the growing file ``path``, oldest first, so that the last two
    give current rates; empty if it cannot be read."""
    try:
        with open_to_read(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            return parse_samples(file.read().splitlines()[size > TAIL :])
    except OSError:
        return []


def counter_rate(before: Sample, after: Sample, key: str) -> float | None:
    """Return the increase per second of the cumulative attribute ``key``, such as ``cpu_s``,
    between two samples, at least 0; None if it is unknown, no time has passed, or another process
    has begun."""
    a, b, seconds = getattr(before, key), getattr(after, key), after.at - before.at
    if a is None or b is None or before.pid != after.pid or seconds <= 0:
        return None
    # Closed connections no longer count, so that the sum may fall.
    return float(max(0.0, b - a)) / float(seconds)


def summarize_samples(samples: Sequence[Sample]) -> Usage | None:
    """Return a rank's samples, in the order of time, summarized by means and peaks; None if no
    process has two of them at different times."""
    runs = [list(own) for _, own in groupby(samples, key=lambda sample: sample.pid)]
    pairs = [pair for own in runs for pair in pairwise(own) if pair[1].at > pair[0].at]
    if not pairs:
        return None
    last = pairs[-1][1]

    def mean_rate(key: str) -> float | None:
        """Return the mean of a rate, with each pair of samples weighted by its length."""
        return mean_known(counter_rate(a, b, key) for a, b in pairs)

    def mean_known(values: Iterable[float | None]) -> float | None:
        """Return the time-weighted mean of values that describe the time since the previous
        sample."""
        known = [(b.at - a.at, v) for (a, b), v in zip(pairs, values, strict=True) if v is not None]
        return sum(s * v for s, v in known) / sum(s for s, _ in known) if known else None

    ends = [b for _, b in pairs]
    devices = [b.device or DeviceSample() for b in ends]
    device = None
    if last.device is not None:
        device = DeviceSample(
            name=last.device.name,
            utilisation=mean_known(d.utilisation for d in devices),
            memory=max((d.memory for d in devices if d.memory is not None), default=None),
            power=mean_known(d.power for d in devices),
            temperature=max((t for d in devices if (t := d.temperature) is not None), default=None),
        )
    return Usage(
        host=last.host,
        seconds=sum(b.at - a.at for a, b in pairs),
        cpu=mean_rate("cpu_s") or 0.0,
        cpu_peak=max(counter_rate(a, b, "cpu_s") or 0.0 for a, b in pairs),
        memory=max(sample.memory for sample in samples),
        sent=mean_rate("sent"),
        received=mean_rate("received"),
        collectives=mean_rate("collectives_s"),
        cores=last.cores,
        busy=mean_known(b.busy for b in ends),
        power=mean_known(b.power for b in ends),
        temperature=max((b.temperature for b in ends if b.temperature is not None), default=None),
        device=device,
        sampling=mean_rate("sampling_s") or 0.0,
    )
