"""Published runs, and the planner's predictions for them.

The efficiency is fitted to other sources (`docs/efficiency.py`). Only the software `CALIBRATED` is
calibrated to the runs that it trained; all others are held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dualml.common.json_types import JsonMapping
from dualml.common.parse import from_toml
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.devices import Device, fitted_efficiency
from dualml.planning.planner.devices import find_device as find_device
from dualml.planning.planner.engine import PRECISIONS, TrainingEngine
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.memory import estimate_memory
from dualml.planning.planner.models import find_model
from dualml.planning.planner.request import make_cluster
from dualml.planning.planner.seconds import seconds
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import can_interleave, divisors

#: Tables with times.
TIMED = ("narayanan-1", "narayanan-2", "korthikanti-5", "llama3-4")
FITTED = "a100"
#: Software whose messages are described by the runs of these tables alone.
CALIBRATED = "deepspeed-2021"
#: Predicted memory over the device's up to which an unpublished choice may have been made; the
#: prediction errs by as much.
TOLERANCE = 1.15
#: Stages per device to try if their number is not published.
CHUNKS = (1, 2, 4, 8)


class PapersEngine(TrainingEngine):
    """Megatron-LM as the papers of the tables count: gradients are summed in 16 bits."""

    precisions = PRECISIONS


PAPERS = PapersEngine()


@cache
def tables() -> JsonMapping:
    """Return key → published table of the data file: its source and rows. In the tables named in
    `TIMED` a row is a run, with teraFLOP/s per device or seconds of an update; the others are about
    memory."""
    return from_toml((files("dualml.planning.planner") / "published.toml").read_text("utf-8"))


@dataclass(frozen=True)
class PublishedRun:
    """A published training run.

    Attributes:
        table: key of its table.
        number: number of its row, from 1.
        layouts: as published; if micro-batch or interleaving are not, all possible ones.
        software: name of the training software.
        overlap: share of the computation beside which messages between replicas ran; None: that of
            the software.
        flops: operations per update and device, counted as in the table.
        measured: seconds of an update.
    """

    table: str
    number: int
    model: str
    shape: Shape
    device: Device
    devices: int
    layouts: Layouts
    fused: bool
    software: str
    overlap: float | None
    flops: float
    measured: float

    @property
    def name(self) -> str:
        """Name of the run, ``TABLE/ROW``."""
        return f"{self.table}/{self.number}"

    def with_layout(self, row: int) -> PublishedRun:
        """Return a copy of the run with only the layout in ``row``, from 0."""
        return replace(self, layouts=self.layouts.select_rows([row]))

    def make_cluster_for(self, given: Efficiency) -> Cluster:
        """Make the cluster that the run used, with the given efficiency, and the overlap of its
        software unless another was published."""
        made = make_cluster(self.device, self.devices, "mixed", given, self.software)
        return made if self.overlap is None else replace(made, overlap=self.overlap)

    def predict(self, given: Efficiency | None = None) -> RunPrediction:
        """Predict seconds and bytes of the run, by default with the fitted efficiency; of
        unpublished choices the fastest is used whose predicted bytes are at most `TOLERANCE` times
        the device's memory, or the fastest of all if there is none."""
        cluster = self.make_cluster_for(given or fitted_efficiency())
        precision, shape, x = PAPERS.precisions["mixed"], self.shape, self.layouts
        held = estimate_memory(shape, x, precision, self.fused, PAPERS).total
        times = seconds(shape, x, cluster, precision, self.fused, PAPERS).total
        fits = held <= TOLERANCE * cluster.memory
        best = int(np.where(fits | ~fits.any(), times, np.inf).argmin())
        return RunPrediction(self, best, float(times[best]), float(held[best]))


@dataclass(frozen=True)
class RunPrediction:
    """Predicted seconds of an update and bytes of the fullest device; ``row`` is the layout
    used."""

    run: PublishedRun
    row: int
    seconds: float
    memory: float

    @property
    def error(self) -> float:
        """Relative error of the time: predicted / measured − 1."""
        return self.seconds / self.run.measured - 1

    @property
    def teraflops(self) -> tuple[float, float]:
        """Measured and predicted teraFLOP/s per device."""
        flops = self.run.flops / 1e12
        return flops / self.run.measured, flops / self.seconds


@cache
def runs() -> tuple[PublishedRun, ...]:
    """Return every published run of the tables in `TIMED`, table by table and row by row."""
    timed = []
    for key in TIMED:
        table = tables()[key]
        for number, row in enumerate(table["rows"], 1):
            timed.append(_run(key, number, table, row))
    return tuple(timed)


@cache
def fitted_names() -> frozenset[str]:
    """Return the names, ``TABLE/ROW``, of the runs to which their software is calibrated."""
    return frozenset(run.name for run in runs() if run.software == CALIBRATED)


def _run(key: str, number: int, table: Mapping[str, Any], row: Mapping[str, Any]) -> PublishedRun:
    """Return row ``number`` of the published table ``key``; seconds of an update are derived from
    teraFLOP/s where those were published."""
    shape = find_model(row["model"], row.get("sequence"))
    fused = bool(table.get("fused", False))
    flops = shape.flops(row["batch"], table["counted"], fused) / row["devices"]
    measured = row["seconds"] if "seconds" in row else flops / (1e12 * row["teraflops"])
    return PublishedRun(
        key,
        number,
        row["model"],
        shape,
        find_device(table["device"]),
        row["devices"],
        _layouts(row),
        fused,
        row.get("software", table["software"]),
        row.get("overlap"),
        flops,
        measured,
    )


def _layouts(row: Mapping[str, Any]) -> Layouts:
    """Return the published layout, or one for each possible micro-batch and interleaving."""
    tp, pp, cp = row["tp"], row["pp"], row.get("cp", 1)
    dp = row["devices"] // (tp * pp * cp)
    each = row["batch"] // dp
    micros = [row["micro"]] if row["micro"] else divisors(each)
    chunks = row.get("chunks", 1)
    woven = [chunks] if chunks else list(CHUNKS)
    woven = [v for v in woven if can_interleave(find_model(row["model"]).layers, pp, v)]
    pairs = [(b, v) for b in micros for v in woven if v == 1 or (each // b) % pp == 0]
    again = RECOMPUTED.index(row.get("recompute", "full"))
    fixed = {"dp": dp, "pp": pp, "tp": tp, "cp": cp, "sp": int(row.get("sp", False))}
    fixed |= {"zero": row.get("zero", 0), "batch": row["batch"], "recompute": again}
    columns = {name: np.full(len(pairs), value, np.int64) for name, value in fixed.items()}
    micro, chunks = np.array(pairs, np.int64).T
    return Layouts(micro=micro, chunks=chunks, **columns)


def median_and_max(errors: Sequence[float]) -> tuple[float, float]:
    """Return the median and the maximum of the absolute errors, of which there is at least one."""
    sizes = np.abs(errors)
    return float(np.median(sizes)), float(sizes.max())


@dataclass(frozen=True)
class ErrorsByHalf:
    """Predictions of the runs that calibrate their software, of the held-out runs on the same
    device, and of runs on other devices."""

    fitted: tuple[RunPrediction, ...]
    held_out: tuple[RunPrediction, ...]
    elsewhere: tuple[RunPrediction, ...]


def predictions_by_group(given: Efficiency | None = None) -> ErrorsByHalf:
    """Predict every published run with an efficiency, by default the fitted one.

    Returns:
        The predictions in three groups: runs that calibrate their software, runs held out on the
        same device, and runs on other devices.
    """
    predicted = [run.predict(given) for run in runs()]
    here = [p for p in predicted if p.run.device.name == FITTED]
    return ErrorsByHalf(
        tuple(p for p in here if p.run.name in fitted_names()),
        tuple(p for p in here if p.run.name not in fitted_names()),
        tuple(p for p in predicted if p.run.device.name != FITTED),
    )
