"""Published all-reduce measurements, and the model's predictions for them.

α and β are fitted (`dualml.planning.cost.fit`) to half of the points of a curve's smallest numbers
of ranks, those with the smallest hashes; the other half, and all points of other numbers of ranks,
are held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dualml.common.json_types import JsonMapping, JsonObject
from dualml.common.parse import from_toml
from dualml.planning.cost.model import Fit, Point, fit


@cache
def tables() -> JsonMapping:
    """Return ``sources`` and ``curves`` of the published data file."""
    return from_toml((files("dualml.planning.cost") / "published.toml").read_text("utf-8"))


@dataclass(frozen=True)
class PublishedTime:
    """One published all-reduce time.

    Attributes:
        curve: key of its curve.
        n, nbytes: number of ranks, and bytes of the vector.
        seconds: time of one all-reduce.
    """

    curve: str
    n: int
    nbytes: int
    seconds: float

    @property
    def digest(self) -> bytes:
        """SHA-256 hash of the point; those with the smallest ones are fitted, the others held
        out."""
        return hashlib.sha256(f"{self.curve}/{self.nbytes}/{self.n}".encode()).digest()

    def point(self, strategy: str) -> Point:
        """Return the measurement as a point of the cost model."""
        return Point.from_measurement(strategy, self.n, self.nbytes, self.seconds)


@dataclass(frozen=True)
class PublishedCurve:
    """Measurements of one library on one machine with one algorithm.

    Attributes:
        name: key of the curve.
        about: its entry in the data file.
        strategy: strategy as which it is priced.
        fitted_ranks: numbers of ranks that the fit may use, half of their points.
        halved: False if there is only one size: then the fit uses all points of these ranks.
        constants_from: curve whose constants are used; its own name, except for runs of other days.
        points: all measurements.
    """

    name: str
    about: Mapping[str, Any]
    strategy: str
    fitted_ranks: tuple[int, ...]
    halved: bool
    constants_from: str
    points: tuple[PublishedTime, ...]

    def fitted_points(self) -> tuple[PublishedTime, ...]:
        """Return the points that the fit may use: those of the ``fitted_ranks``, of which only the
        half (rounded up) with the smallest hashes if the curve is ``halved``."""
        few = sorted((p for p in self.points if p.n in self.fitted_ranks), key=lambda p: p.digest)
        return tuple(few[: -(-len(few) // 2)] if self.halved else few)

    def fit(self, strategy: str = "") -> Fit:
        """Fit α and β to the `fitted_points` of this curve, or of the one that ``constants_from``
        names, priced as ``strategy``; empty: the curve's own strategy."""
        points = (
            self.fitted_points()
            if self.constants_from == self.name
            else curves()[self.constants_from].fitted_points()
        )
        return fit([p.point(strategy or self.strategy) for p in points])

    def errors_by_part(self, strategy: str = "") -> FitErrors:
        """Return the errors of all points, predicted / measured − 1, in three groups: fitted, other
        sizes on the same ranks, other numbers of ranks. ``strategy`` as for `fit`."""
        link, seen = self.fit(strategy).link, set(self.fitted_points())

        def errors(of: Callable[[PublishedTime], bool]) -> dict[PublishedTime, float]:
            rows = [(p, p.point(strategy or self.strategy)) for p in self.points if of(p)]
            return {p: link.seconds(q.steps, q.bytes) / p.seconds - 1 for p, q in rows}

        return FitErrors(
            errors(lambda p: p in seen),
            errors(lambda p: p not in seen and p.n in self.fitted_ranks),
            errors(lambda p: p.n not in self.fitted_ranks),
        )


@dataclass(frozen=True)
class FitErrors:
    """Errors of the fitted points, of other sizes on the same ranks, and of other numbers of
    ranks."""

    fitted: Mapping[PublishedTime, float]
    sizes: Mapping[PublishedTime, float]
    ranks: Mapping[PublishedTime, float]

    def held_out_errors(self) -> list[float]:
        """Return the errors of all points that were not fitted."""
        return [*self.sizes.values(), *self.ranks.values()]


@cache
def curves() -> Mapping[str, PublishedCurve]:
    """Return name → published curve, for all curves of the data file, in its order."""
    return {name: _curve(name, about) for name, about in tables()["curves"].items()}


def _curve(name: str, about: Mapping[str, Any]) -> PublishedCurve:
    """Return a curve from its entry in the data file, with times in µs or bus bandwidths in 10⁹
    bytes per second converted to seconds."""
    points = []
    for row in about["rows"]:
        n = row["ranks"]
        unit = "us" if "us" in row else "busbw"
        for nbytes, value in zip(row["bytes"], row[unit], strict=True):
            ring = 2 * (n - 1) / n * nbytes
            seconds = value * 1e-6 if unit == "us" else ring / (value * 1e9)
            points.append(PublishedTime(name, n, nbytes, seconds))
    return PublishedCurve(
        name,
        about,
        about["strategy"],
        tuple(about["fit"]),
        about.get("half", True),
        about.get("by", name),
        tuple(points),
    )


def median_and_max(errors: Sequence[float]) -> tuple[float, float]:
    """Return the median and the maximum of the absolute errors, of which there is at least one.

    Example:
        >>> median_and_max([0.1, -0.4, 0.2])
        (0.2, 0.4)
    """
    import numpy as np

    sizes = np.abs(errors)
    return float(np.median(sizes)), float(sizes.max())


def describe() -> JsonObject:
    """Return every curve with its source, constants, points and predictions as JSON-compatible
    values."""
    found = []
    for curve in curves().values():
        link, parts = curve.fit().link, curve.errors_by_part()
        points = [
            {
                "part": part,
                "ranks": p.n,
                "bytes": p.nbytes,
                "measured_s": p.seconds,
                "predicted_s": p.seconds * (1 + error),
                "error": error,
            }
            for part, errors in vars(parts).items()
            for p, error in errors.items()
        ]
        about = {key: value for key, value in curve.about.items() if key != "rows"}
        source = tables()["sources"][about["source"]]
        errors = {
            part: dict(zip(("median", "worst"), median_and_max([*of.values()]), strict=True))
            for part, of in vars(parts).items()
            if of
        }
        about["source"] = {**source, "read": str(source["read"])}
        found.append(
            {"curve": curve.name, **about, "link": vars(link), "errors": errors, "points": points}
        )
    return {"curves": found}
