"""A calibration in sentences: what was fitted, how sure it is, and what it used."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages, numbers
from dualml.planning.cost.units import format_bytes, format_seconds
from dualml.planning.planner.calibration import PlanCalibration
from dualml.report.plan.published import format_signed_percent


def calibration_lines(fitted: PlanCalibration, words: Messages) -> Iterator[str]:
    """Yield a line with the fitted constants and their ranges, one for each measurement, and, if a
    memory offset was fitted, one with its bytes."""
    low, high = (numbers.percent(share) for share in fitted.efficiency_range)
    yield words(
        "planner.calibrated.overlap" if fitted.overlap_fitted else "planner.calibrated.efficiency",
        efficiency=numbers.percent(fitted.efficiency),
        low=low,
        high=high,
        overlap=numbers.percent(fitted.overlap),
        least=numbers.percent(fitted.overlap_range[0]),
        most=numbers.percent(fitted.overlap_range[1]),
        worst=numbers.percent(max(map(abs, fitted.errors))),
    )
    for one, error in zip(fitted.measurements, fitted.errors, strict=True):
        yield words(
            "planner.calibrated.used",
            source=one.source,
            steps=one.steps,
            measured=format_seconds(one.seconds),
            predicted=format_seconds(one.seconds * (1 + error)),
            error=format_signed_percent(error),
        )
    if fitted.memory is not None:
        kind = "more" if fitted.memory > 0 else "less"
        yield words(f"planner.calibrated.{kind}", size=format_bytes(abs(fitted.memory)))
