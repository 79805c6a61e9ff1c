"""Published all-reduces, and what the model predicts for them.

α and β are fitted (`dualml.cost.fit`) to half of the points of a curve's few ranks, those with the
smallest hashes; the other half, and all points of other numbers of ranks, are held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dualml.cost.model import Fit, Point, fit
from dualml.parse import from_toml


@cache
def tables() -> Mapping[str, Any]:
    """``sources`` and ``curves``, as the file has them."""
    return from_toml((files("dualml.cost") / "published.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Measured:
    """One published time.

    Attributes:
        curve: key of its curve.
        n, nbytes: ranks, and bytes of the vector.
        seconds: of one all-reduce.
    """

    curve: str
    n: int
    nbytes: int
    seconds: float

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(f"{self.curve}/{self.nbytes}/{self.n}".encode()).digest()

    def point(self, strategy: str) -> Point:
        return Point.of(strategy, self.n, self.nbytes, self.seconds)


@dataclass(frozen=True)
class Curve:
    """Measurements of one library on one machine by one algorithm.

    Attributes:
        strategy: what it is priced as.
        of: the numbers of ranks that the fit may see, half of their points.
        halved: False where there is one size alone: then the fit sees all points of these ranks.
        by: the curve whose constants are used; its own name, but for runs of other days.
    """

    name: str
    about: Mapping[str, Any]
    strategy: str
    of: tuple[int, ...]
    halved: bool
    by: str
    points: tuple[Measured, ...]

    def fitted(self) -> tuple[Measured, ...]:
        """The points that the fit may use."""
        few = sorted((p for p in self.points if p.n in self.of), key=lambda p: p.digest)
        return tuple(few[: -(-len(few) // 2)] if self.halved else few)

    def fit(self, strategy: str = "") -> Fit:
        """The constants, of this strategy or of another one."""
        points = self.fitted() if self.by == self.name else curves()[self.by].fitted()
        return fit([p.point(strategy or self.strategy) for p in points])

    def parts(self, strategy: str = "") -> Parts:
        """The errors of all points, predicted / measured − 1, by what the fit saw of them."""
        link, seen = self.fit(strategy).link, set(self.fitted())

        def errors(of: Callable[[Measured], bool]) -> dict[Measured, float]:
            rows = [(p, p.point(strategy or self.strategy)) for p in self.points if of(p)]
            return {p: link.seconds(q.steps, q.bytes) / p.seconds - 1 for p, q in rows}

        return Parts(
            errors(lambda p: p in seen),
            errors(lambda p: p not in seen and p.n in self.of),
            errors(lambda p: p.n not in self.of),
        )


@dataclass(frozen=True)
class Parts:
    """Of the points that were fitted, of other sizes on the same ranks, of other ranks."""

    fitted: Mapping[Measured, float]
    sizes: Mapping[Measured, float]
    ranks: Mapping[Measured, float]

    def held_out(self) -> list[float]:
        return [*self.sizes.values(), *self.ranks.values()]


@cache
def curves() -> Mapping[str, Curve]:
    return {name: _curve(name, about) for name, about in tables()["curves"].items()}


def _curve(name: str, about: Mapping[str, Any]) -> Curve:
    points = []
    for row in about["rows"]:
        n = row["ranks"]
        unit = "us" if "us" in row else "busbw"
        for nbytes, value in zip(row["bytes"], row[unit], strict=True):
            ring = 2 * (n - 1) / n * nbytes
            seconds = value * 1e-6 if unit == "us" else ring / (value * 1e9)
            points.append(Measured(name, n, nbytes, seconds))
    return Curve(
        name, about, about["strategy"], tuple(about["fit"]), about.get("half", True),
        about.get("by", name), tuple(points),
    )  # fmt: skip


def summary(errors: Sequence[float]) -> tuple[float, float]:
    """Median and worst of their sizes.

    Example:
        >>> summary([0.1, -0.4, 0.2])
        (0.2, 0.4)
    """
    import numpy as np

    sizes = np.abs(errors)
    return float(np.median(sizes)), float(sizes.max())


def describe() -> dict[str, Any]:
    """Every curve with its source, constants, points and predictions, as JSON."""
    found = []
    for curve in curves().values():
        link, parts = curve.fit().link, curve.parts()
        points = [
            {"part": part, "ranks": p.n, "bytes": p.nbytes, "measured_s": p.seconds,
             "predicted_s": p.seconds * (1 + error), "error": error}
            for part, errors in vars(parts).items() for p, error in errors.items()
        ]  # fmt: skip
        about = {key: value for key, value in curve.about.items() if key != "rows"}
        source = tables()["sources"][about["source"]]
        errors = {
            part: dict(zip(("median", "worst"), summary([*of.values()]), strict=True))
            for part, of in vars(parts).items()
            if of
        }
        about["source"] = {**source, "read": str(source["read"])}
        found.append({"curve": curve.name, **about, "link": vars(link), "errors": errors,
                      "points": points})  # fmt: skip
    return {"curves": found}
