"""All fits of one run, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.cost.closed import LOCAL_SGD
from dualml.cost.link import Link
from dualml.cost.model import Fit, Point, fit
from dualml.cost.topology import FLAT, Topology
from dualml.errors import UserError

#: Whose constants stand in where a strategy has no fit of its own.
STAND_IN = {LOCAL_SGD: "all_reduce", ASYNCHRONOUS: "parameter_server"}


@dataclass(frozen=True)
class Fits:
    """The fits of one run: one for all counted strategies together, and one for each strategy,
    because a native collective has constants of its own.

    Attributes:
        point_to_point: from all strategies whose messages are made one by one, or None.
        strategies: name → fit.
        skipped: name → why there is none.
        topology: what the points were taken to be, as `Topology.parse` reads it.
    """

    point_to_point: Fit | None = None
    strategies: dict[str, Fit] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    topology: str = "flat"

    def link(self, name: str) -> Link:
        """Constants for a strategy: its own, those of what it is made of, or point to point.

        Raises:
            UserError: there are none; it says which there are.
        """
        found = self.strategies.get(name) or self.strategies.get(STAND_IN.get(name, ""))
        found = found or self.point_to_point
        if found is None:
            known = ", ".join(self.strategies) or "none"
            raise UserError(f"no fit for {name} and none point to point; there are: {known}")
        return found.link

    def describe(self) -> dict[str, Any]:
        """JSON form, ``{"topology", "point_to_point", "strategies", "skipped"}``."""
        point = self.point_to_point
        return {
            "topology": self.topology,
            "point_to_point": None if point is None else point.describe(),
            "strategies": {name: one.describe() for name, one in self.strategies.items()},
            "skipped": self.skipped,
        }

    @classmethod
    def restore(cls, text: dict[str, Any]) -> Fits:
        point = text["point_to_point"]
        return cls(
            None if point is None else Fit.restore(point),
            {name: Fit.restore(one) for name, one in text["strategies"].items()},
            dict(text.get("skipped", {})),
            str(Topology.parse(text["topology"])),
        )

    @classmethod
    def read(cls, path: Path) -> Fits:
        """From a JSON file.

        Raises:
            UserError: no such file, or not fits.
        """
        from dualml.files import readable
        from dualml.store.costs import read_fits

        record = read_fits(path)
        with readable(f"{path}: not a file of fits"):
            return cls.restore(record.describe())


def fit_all(points: Sequence[Point], topology: Topology = FLAT) -> Fits:
    """One fit for each strategy among the points, and one for those made of counted messages.

    A strategy whose points do not suffice is skipped, with the reason.
    """
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.strategy, []).append(point)
    counted = [p for p in points if p.strategy in STRATEGIES and STRATEGIES[p.strategy].counted]
    found: dict[str, Fit] = {}
    skipped: dict[str, str] = {}
    for name, mine in {**by_name, "": counted}.items():
        try:
            found[name] = fit(mine)
        except UserError as error:
            skipped[name or "point_to_point"] = str(error)
    point_to_point = found.pop("", None)
    return Fits(point_to_point, found, skipped, str(topology))
