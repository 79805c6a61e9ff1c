"""Communication costs: ``collectives.json`` of a trial, ``cost.json`` and fits of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dualml.common.json_types import JsonMapping
from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record

Range = Annotated[list[Number], Field(min_length=2, max_length=2)]
Seconds = Annotated[Number, Field(ge=0)]


class TrafficRecord(Record):
    """Traffic of one rank: messages and bytes, native calls and the payload bytes passed to
    them."""

    sent: Count
    received: Count
    bytes_sent: Count
    bytes_received: Count
    calls: Count
    payload: Count


class PortRecord(Record):
    """Mean traffic through the network interface of a rank's machine, including all headers."""

    bytes_sent: Number
    packets_sent: Number
    bytes_received: Number
    packets_received: Number


class CollectiveRow(Record):
    """Measurements of one strategy with vectors of one size; ``wire_bytes`` went through the
    loopback, ``ports`` has each rank's interface if ranks are on several machines."""

    strategy: str
    bytes: Count
    seconds: Seconds
    low: Seconds
    high: Seconds
    repeats: Count = 0
    counted: bool = False
    traffic: list[TrafficRecord] = []
    wire_bytes: Number | None = None
    ports: list[PortRecord] = []


class CollectivesRecord(Record):
    """Measurements of collectives in one trial.

    ``copy_s`` is bytes → seconds of a copy in memory. If ranks are on several machines,
    ``per_machine`` is the number of ranks on each of them, 0 if they are not equally many
    neighbours, and ``engine`` names the framework's transport. ``clock`` names the clock of the
    seconds, see `dualml.common.clock`.
    """

    backend: Name
    device: str = ""
    world_size: Annotated[int, Field(ge=1, le=4096)]
    per_machine: Count | None = None
    engine: str = ""
    clock: str = ""
    rows: list[CollectiveRow]
    copy_s: dict[Annotated[str, Field(pattern=r"^\d{1,18}$")], Seconds] = {}


class LinkRecord(Record):
    """Constants of the cost model: latency, seconds per byte sent, and seconds per byte reduced."""

    alpha_s: Seconds
    beta_s_per_byte: Seconds
    gamma_s_per_byte: Seconds = 0.0


class FitRecord(Record):
    """Fitted constants and the quality of the fit, see `dualml.planning.cost.model.Fit`."""

    link: LinkRecord
    errors: dict[str, Number | None]
    intervals: dict[str, Range]
    points: Count
    median_error: Number | None
    worst_error: Number | None
    ranks: Annotated[list[Count], Field(min_length=2, max_length=2)]
    sizes: Annotated[list[Count], Field(min_length=2, max_length=2)]


class FitsRecord(Record):
    """Fits of one run, ``cost.BACKEND-nN.json``, which `dualml simulate --fit` reads."""

    topology: str
    engine: str = ""
    point_to_point: FitRecord | None
    strategies: dict[str, FitRecord]
    skipped: dict[str, str] = {}


class NamedFitRecord(Record):
    """A fit with its backend and strategy; ``strategy`` null stands for all point-to-point
    strategies."""

    backend: Name
    world_size: Count
    strategy: str | None
    fit: FitRecord


class CheckRecord(Record):
    """A measurement with more ranks, compared with the prediction from the smallest number of
    ranks."""

    backend: Name
    world_size: Count
    from_world_size: Count
    strategy: str
    bytes: Count
    measured_s: Seconds
    predicted_s: Seconds


class SlowdownRecord(Record):
    """Time of an update with a straggler divided by the time without."""

    backend: Name
    seed: Count
    arm: Name
    base: Name
    measured: Number
    predicted: Number | None


class CostRecord(Record):
    """The content of ``cost.json``."""

    topology: str = "flat"
    fits: list[NamedFitRecord] = []
    checks: list[CheckRecord] = []
    slowdowns: list[SlowdownRecord] = []


COLLECTIVES = JsonFile("collectives.json", CollectivesRecord, version=1)
COST = JsonFile("cost.json", CostRecord, version=1)


def write_fits(folder: Path, backend: str, ranks: int, fits: JsonMapping) -> None:
    """Write the fits of a backend and a number of ranks, with the fields of a `FitsRecord`, to
    ``cost.BACKEND-nN.json`` in ``folder``, in place of an earlier file."""
    file = fits_file(f"cost.{backend}-n{ranks}.json")
    file.write(folder, file.make_record(fits))


def read_fits(path: Path) -> FitsRecord:
    """Read a file of fits; raise `UserError` if it is missing, damaged, or another file."""
    return fits_file(path.name).read(path.parent)


def fits_file(name: str) -> JsonFile[FitsRecord]:
    """Return the file type of a fits file called ``name``; a file without a version is read as
    well."""
    return JsonFile(name, FitsRecord, version=1, bare=True)
