"""Calibration of a plan: the efficiency, and the overlap, with which measured steps are predicted
best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.planning.cost.units import format_seconds
from dualml.planning.planner.measurements import Measurement, read_measurements
from dualml.planning.planner.memory import estimate_memory
from dualml.planning.planner.seconds import seconds

if TYPE_CHECKING:
    from dualml.planning.planner.cluster import Cluster
    from dualml.planning.planner.plan_request import PlanRequest

#: Range in which the efficiency is sought.
LOWEST, HIGHEST = 0.01, 1.0
#: Tolerances of the fits: of the logarithm of the efficiency, and of the overlap.
TOLERANCE, OVERLAP_TOLERANCE = 1e-7, 1e-5
#: Change of the error over all overlaps below which measurements say nothing about the overlap.
FLAT = 1e-6


@dataclass(frozen=True)
class PlanCalibration:
    """Constants fitted to measured steps, and how sure they are.

    Attributes:
        measurements: what was used.
        efficiency: share of the peak that products reach (`--efficiency`), with its range.
        overlap: share of the backward pass that hides messages (`--overlap`), with its range.
        overlap_fitted: whether the measurements determine the overlap; else it is assumed.
        errors: relative error of each measurement with these constants: predicted / measured − 1.
        memory: largest measured minus predicted bytes; None if no memory was measured.
    """

    measurements: tuple[Measurement, ...]
    efficiency: float
    efficiency_range: tuple[float, float]
    overlap: float
    overlap_range: tuple[float, float]
    overlap_fitted: bool
    errors: tuple[float, ...]
    memory: float | None

    def apply(self, request: PlanRequest) -> PlanRequest:
        """Return the request with the fitted constants, and with the bytes by which measured memory
        exceeds the prediction added to its reserve and taken from the devices' memory.

        Raises:
            UserError: these bytes are more than a device has.
        """
        extra = max(0.0, self.memory or 0.0)
        cluster = with_constants(request.cluster, self.efficiency, self.overlap)
        if extra >= cluster.memory:
            raise UserError(
                f"--calibrate: measured memory is {extra / 1e9:.4g} GB beyond the prediction, more "
                "than a device has; check its layout and model"
            )
        cluster = replace(cluster, memory=cluster.memory - extra)
        return replace(request, cluster=cluster, reserve=request.reserve + extra)

    def describe(self) -> JsonObject:
        """Return the constants, their ranges, and each measurement with its error as
        JSON-compatible values."""
        rows = [
            {
                "source": one.source,
                "model": one.shape.name,
                "devices": one.devices,
                "layout": one.layouts.describe(0),
                "steps": one.steps,
                "measured_s": one.seconds,
                "predicted_s": one.seconds * (1 + error),
                "error": error,
            }
            for one, error in zip(self.measurements, self.errors, strict=True)
        ]
        return {
            "efficiency": self.efficiency,
            "efficiency_range": list(self.efficiency_range),
            "overlap": self.overlap,
            "overlap_range": list(self.overlap_range),
            "overlap_fitted": self.overlap_fitted,
            "memory_beyond_prediction": self.memory,
            "measurements": rows,
        }


def with_constants(cluster: Cluster, efficiency: float, overlap: float) -> Cluster:
    """Return a cluster whose products reach ``efficiency`` of the peak and whose backward pass
    hides messages by ``overlap``."""
    return replace(cluster, reached=replace(cluster.reached, products=efficiency), overlap=overlap)


def calibrate(paths: Sequence[Path], request: PlanRequest) -> PlanCalibration:
    """Fit the efficiency to the measured steps in ``paths`` (`read_measurements`), and from two
    measurements on the overlap; everything else is as in ``request``.

    Raises:
        UserError: an unusable measurement, or one that no efficiency explains.
    """
    found = tuple(read_measurements(paths, request))
    cluster = request.cluster
    for one in found:
        _check_possible(one, cluster)
    efficiency, overlap, fitted = _fit(found, cluster)
    errors = tuple(_error(one, cluster, efficiency, overlap) for one in found)
    return PlanCalibration(
        found,
        efficiency,
        _efficiency_range(found, cluster, efficiency, overlap),
        overlap,
        _overlap_range(found, cluster, overlap) if fitted else (0.0, 1.0),
        fitted,
        errors,
        _memory_beyond(found),
    )


def predict_seconds(one: Measurement, cluster: Cluster) -> float:
    """Return the predicted seconds of a measured update on devices like the cluster's, as many as
    the measurement had."""
    cluster = replace(cluster, devices=one.devices)
    precision = one.engine.precisions[one.precision]
    times = seconds(one.shape, one.layouts, cluster, precision, one.fused, one.engine)
    return float(times.total[0])


def _error(one: Measurement, cluster: Cluster, efficiency: float, overlap: float) -> float:
    """Return the relative error of a measurement: predicted / measured − 1."""
    return predict_seconds(one, with_constants(cluster, efficiency, overlap)) / one.seconds - 1


def _check_possible(one: Measurement, cluster: Cluster) -> None:
    """Raise `UserError` if a measurement is faster than products at the peak allow, or slower than
    any efficiency explains."""
    fastest = predict_seconds(one, with_constants(cluster, HIGHEST, 1.0))
    slowest = predict_seconds(one, with_constants(cluster, LOWEST, 0.0))
    if one.seconds < fastest:
        raise UserError(
            f"{one.source}: {format_seconds(one.seconds)} is less than the "
            f"{format_seconds(fastest)} that the peak of the device allows; check batch, layout, "
            "--device, --peak and precision"
        )
    if one.seconds > slowest:
        raise UserError(
            f"{one.source}: {format_seconds(one.seconds)} is more than the "
            f"{format_seconds(slowest)} at {LOWEST:.0%} of the peak; what it waits for is not in "
            "the model (swapping, loading of data, a shared machine)"
        )


def _fit(found: Sequence[Measurement], cluster: Cluster) -> tuple[float, float, bool]:
    """Return efficiency, overlap, and whether the overlap was fitted: with one measurement, or
    measurements that do not depend on it, it is the cluster's."""

    def loss(overlap: float) -> float:
        return _loss(found, cluster, _fit_efficiency(found, cluster, overlap), overlap)

    overlap, fitted = cluster.overlap, False
    if len(found) > 1:
        best = _minimise(loss, 0.0, 1.0, OVERLAP_TOLERANCE)
        candidates = {point: loss(point) for point in (0.0, best, 1.0)}
        fitted = max(candidates.values()) - min(candidates.values()) > FLAT
        overlap = min(candidates, key=lambda point: candidates[point]) if fitted else overlap
    return _fit_efficiency(found, cluster, overlap), overlap, fitted


def _fit_efficiency(found: Sequence[Measurement], cluster: Cluster, overlap: float) -> float:
    """Return the efficiency, from `LOWEST` to `HIGHEST`, that predicts the measurements best with a
    given overlap."""
    point = _minimise(
        lambda x: _loss(found, cluster, float(np.exp(x)), overlap),
        float(np.log(LOWEST)),
        float(np.log(HIGHEST)),
        TOLERANCE,
    )
    return float(np.exp(point))


def _loss(
    found: Sequence[Measurement], cluster: Cluster, efficiency: float, overlap: float
) -> float:
    """Return the mean square of log(predicted / measured) over the measurements."""
    errors = [np.log1p(_error(one, cluster, efficiency, overlap)) for one in found]
    return float(np.mean(np.square(errors)))


def _minimise(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Return where a function with one minimum between ``low`` and ``high`` has it."""
    from scipy.optimize import minimize_scalar  # takes a third of a second to import

    options = {"xatol": tolerance}
    found = minimize_scalar(function, bounds=(low, high), method="bounded", options=options)
    return float(found.x)


def _efficiency_range(
    found: Sequence[Measurement], cluster: Cluster, efficiency: float, overlap: float
) -> tuple[float, float]:
    """Return the lowest and the highest efficiency, ``efficiency`` included. Of several
    measurements: fits to each of them alone. Of a single one: fits to its quartiles with
    ``overlap``, and to itself with overlap 0 and 1."""
    if len(found) > 1:
        each = [_fit_efficiency([one], cluster, overlap) for one in found]
    else:
        one = found[0]
        ends = [replace(one, seconds=value) for value in (one.low, one.high)]
        each = [_fit_efficiency([end], cluster, overlap) for end in ends]
        each += [_fit_efficiency(found, cluster, share) for share in (0.0, 1.0)]
    return min(efficiency, *each), max(efficiency, *each)


def _overlap_range(
    found: Sequence[Measurement], cluster: Cluster, overlap: float
) -> tuple[float, float]:
    """Return the range of the overlap when each measurement in turn is left out; from 0 to 1 with
    two measurements, of which one alone determines no overlap."""
    if len(found) == 2:
        return 0.0, 1.0
    each = [_fit([*found[:k], *found[k + 1 :]], cluster)[1] for k in range(len(found))]
    return min(overlap, *each), max(overlap, *each)


def _memory_beyond(found: Sequence[Measurement]) -> float | None:
    """Return the largest measured minus predicted bytes of a device; None if none was measured."""
    beyond = []
    for one in found:
        if one.memory is not None:
            precision = one.engine.precisions[one.precision]
            held = estimate_memory(one.shape, one.layouts, precision, one.fused, one.engine)
            beyond.append(one.memory - float(held.total[0]))
    return max(beyond) if beyond else None
