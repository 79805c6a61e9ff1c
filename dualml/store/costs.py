"""What communication cost: ``collectives.json`` of a trial, ``cost.json`` and fits of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dualml.store.jsonfile import Count, JsonFile, Name, Number, Record

Range = Annotated[list[Number], Field(min_length=2, max_length=2)]
Seconds = Annotated[Number, Field(ge=0)]


class Traffic(Record):
    """Of one rank: messages and bytes, native calls and the bytes handed to them."""

    sent: Count
    received: Count
    bytes_sent: Count
    bytes_received: Count
    calls: Count
    payload: Count


class Port(Record):
    """What went through the network interface of a rank's machine, with all headers, on average."""

    bytes_sent: Number
    packets_sent: Number
    bytes_received: Number
    packets_received: Number


class CollectiveRow(Record):
    """One strategy on vectors of one size; ``wire_bytes``: through the loopback, ``ports``: of each
    rank where they are on several machines."""

    strategy: str
    bytes: Count
    seconds: Seconds
    low: Seconds
    high: Seconds
    repeats: Count = 0
    counted: bool = False
    traffic: list[Traffic] = []
    wire_bytes: Number | None = None
    ports: list[Port] = []


class CollectivesRecord(Record):
    """``copy_s``: bytes → seconds of a copy in memory. Where ranks are on several machines,
    ``per_machine``: on each of them, 0 where that is not the same number of neighbours, and
    ``engine``: what the framework sends by. ``clock``: what the seconds are read from, see
    `dualml.clock`."""

    backend: Name
    device: str = ""
    world_size: Annotated[int, Field(ge=1, le=4096)]
    per_machine: Count | None = None
    engine: str = ""
    clock: str = ""
    rows: list[CollectiveRow]
    copy_s: dict[Annotated[str, Field(pattern=r"^\d{1,18}$")], Seconds] = {}


class LinkRecord(Record):
    alpha_s: Seconds
    beta_s_per_byte: Seconds
    gamma_s_per_byte: Seconds = 0.0


class FitRecord(Record):
    """Constants with what they were fitted to, see `dualml.cost.model.Fit`."""

    link: LinkRecord
    errors: dict[str, Number | None]
    intervals: dict[str, Range]
    points: Count
    median_error: Number | None
    worst_error: Number | None
    ranks: Annotated[list[Count], Field(min_length=2, max_length=2)]
    sizes: Annotated[list[Count], Field(min_length=2, max_length=2)]


class FitsRecord(Record):
    """``cost.BACKEND-nN.json``, which `dualml simulate --fit` reads."""

    topology: str
    engine: str = ""
    point_to_point: FitRecord | None
    strategies: dict[str, FitRecord]
    skipped: dict[str, str] = {}


class NamedFit(Record):
    """``strategy`` null: all that send point to point."""

    backend: Name
    world_size: Count
    strategy: str | None
    fit: FitRecord


class Check(Record):
    """A measurement with more ranks against the prediction from the fewest."""

    backend: Name
    world_size: Count
    from_world_size: Count
    strategy: str
    bytes: Count
    measured_s: Seconds
    predicted_s: Seconds


class Slowdown(Record):
    """Time of an update with a slow node over that without."""

    backend: Name
    seed: Count
    arm: Name
    base: Name
    measured: Number
    predicted: Number | None


class CostRecord(Record):
    topology: str = "flat"
    fits: list[NamedFit] = []
    checks: list[Check] = []
    slowdowns: list[Slowdown] = []


COLLECTIVES = JsonFile("collectives.json", CollectivesRecord, version=1)
COST = JsonFile("cost.json", CostRecord, version=1)


def write_fits(folder: Path, backend: str, ranks: int, fits: Mapping[str, Any]) -> None:
    file = fits_file(f"cost.{backend}-n{ranks}.json")
    file.write(folder, file.made(fits))


def read_fits(path: Path) -> FitsRecord:
    """Raises `UserError` for a file that is missing, damaged, or none of fits."""
    return fits_file(path.name).read(path.parent)


def fits_file(name: str) -> JsonFile[FitsRecord]:
    return JsonFile(name, FitsRecord, version=1, bare=True)
