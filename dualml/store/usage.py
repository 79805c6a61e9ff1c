"""``rankR.usage.jsonl``: what the process of a rank used of its machine, sampled as it ran."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from pydantic import ValidationError

from dualml.errors import UserError
from dualml.files import MOST_TEXT, open_to_read, read_bytes
from dualml.store.jsonfile import Count, Number, Record

NAME = "rank{}.usage.jsonl"
#: Bytes from the end of a file in which its last samples are.
TAIL = 2**13


class DeviceSample(Record):
    """Of a GPU or an NPU: ``utilisation`` from 0 to 1, bytes in use, watts, °C; null: not told."""

    name: str = ""
    utilisation: Number | None = None
    memory: Count | None = None
    power: Number | None = None
    temperature: Number | None = None


class Sample(Record):
    """One look at a rank's process and its machine.

    Attributes:
        at: seconds since 1970.
        host, pid: whose; numbers "so far" start again where ``pid`` changes.
        phase, done, total: what it was doing, and how far it was: updates, or measurements.
        cpu_s: seconds of processors so far.
        memory: bytes resident.
        sent, received: bytes over its TCP connections so far, of those that are open.
        collectives_s: seconds inside collectives so far, of waiting and of transferring.
        cores: of the machine; ``busy``: how many of them worked since the last look, for whomever.
        used: bytes of the machine's memory in use.
        power, temperature: of its processors, in watts and °C.
        sampling_s: seconds of processors that looking took so far.
        last: the trial is over.
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
    """A rank's samples in short: means and peaks over all of them.

    Attributes:
        seconds: that the samples cover.
        cpu, cpu_peak: cores that the process kept busy.
        memory: bytes, at most.
        sent, received: bytes a second.
        collectives: share of the time inside collectives.
        cores, busy: of the machine, and how many of them worked.
        power, temperature: of its processors, in watts and °C; the latter at most.
        device: likewise: means, but memory and temperature at most.
        sampling: cores that looking took.
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
    return trial / NAME.format(rank)


def line(sample: Sample) -> bytes:
    """A sample as it is appended."""
    return json.dumps(sample.describe(), separators=(",", ":")).encode() + b"\n"


def readable(lines: Iterable[bytes]) -> list[Sample]:
    """Those that can be read: a line may be cut off, and what is watched must not stop anyone."""
    samples = []
    for text in lines:
        try:
            samples.append(Sample.model_validate_json(text))
        except ValidationError:
            continue
    return samples


def read_usage(trial: Path, rank: int) -> list[Sample]:
    """All samples of a rank; none where there is no file, or none that can be read."""
    try:
        return readable(read_bytes(usage_path(trial, rank), MOST_TEXT).splitlines())
    except (OSError, UserError):
        return []


def last_samples(path: Path) -> list[Sample]:
    """The last few of a file that may be growing; the last but one tells what has changed since."""
    try:
        with open_to_read(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            return readable(file.read().splitlines()[size > TAIL :])
    except OSError:
        return []


def rate(before: Sample, after: Sample, key: str) -> float | None:
    """Of a number so far: how much a second between two looks; None where it is not known, or
    another process has begun."""
    a, b, seconds = getattr(before, key), getattr(after, key), after.at - before.at
    if a is None or b is None or before.pid != after.pid or seconds <= 0:
        return None
    # Connections that were closed take their bytes along.
    return float(max(0.0, b - a)) / float(seconds)


def summary(samples: Sequence[Sample]) -> Usage | None:
    """Means and peaks; None where there are fewer than two samples of one process."""
    runs = [list(own) for _, own in groupby(samples, key=lambda sample: sample.pid)]
    pairs = [pair for own in runs for pair in pairwise(own) if pair[1].at > pair[0].at]
    if not pairs:
        return None
    last = pairs[-1][1]

    def over(key: str) -> float | None:
        """Mean of a rate, each pair by its length."""
        known = [(b.at - a.at, r) for a, b in pairs if (r := rate(a, b, key)) is not None]
        return sum(s * r for s, r in known) / sum(s for s, _ in known) if known else None

    def mean(values: Iterable[float | None]) -> float | None:
        """Of what a sample tells of the time since the one before."""
        known = [(b.at - a.at, v) for (a, b), v in zip(pairs, values, strict=True) if v is not None]
        return sum(s * v for s, v in known) / sum(s for s, _ in known) if known else None

    ends = [b for _, b in pairs]
    devices = [b.device or DeviceSample() for b in ends]
    device = None
    if last.device is not None:
        device = DeviceSample(
            name=last.device.name,
            utilisation=mean(d.utilisation for d in devices),
            memory=max((d.memory for d in devices if d.memory is not None), default=None),
            power=mean(d.power for d in devices),
            temperature=max((t for d in devices if (t := d.temperature) is not None), default=None),
        )
    return Usage(
        host=last.host,
        seconds=sum(b.at - a.at for a, b in pairs),
        cpu=over("cpu_s") or 0.0,
        cpu_peak=max(rate(a, b, "cpu_s") or 0.0 for a, b in pairs),
        memory=max(sample.memory for sample in samples),
        sent=over("sent"),
        received=over("received"),
        collectives=over("collectives_s"),
        cores=last.cores,
        busy=mean(b.busy for b in ends),
        power=mean(b.power for b in ends),
        temperature=max((b.temperature for b in ends if b.temperature is not None), default=None),
        device=device,
        sampling=over("sampling_s") or 0.0,
    )
