"""All fits of one run, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
        engine: whose collectives were measured, where `dualml.cost.engines` knows it.
    """

    point_to_point: Fit | None = None
    strategies: dict[str, Fit] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    topology: str = "flat"
    engine: str = ""

    def link(self, name: str) -> Link:
        """Constants for a strategy: its own, those of what it is made of, or point to point.

        Raises:
            UserError: there are none; it says which there are.
        """
        own = self.strategies.get(name) or self.strategies.get(STAND_IN.get(name, ""))
        fit = own or self.point_to_point
        if fit is None:
            known = ", ".join(self.strategies) or "none"
            raise UserError(f"no fit for {name} and none point to point; there are: {known}")
        return fit.link

    def describe(self) -> dict[str, Any]:
        """JSON form, ``{"topology", "point_to_point", "strategies", "skipped"}``, and ``engine``
        where there is one."""
        content = asdict(self)
        if not self.engine:
            del content["engine"]
        return content

    @classmethod
    def restore(cls, text: dict[str, Any]) -> Fits:
        """From what `describe` gives."""
        from pydantic import TypeAdapter

        topology = str(Topology.parse(text["topology"]))
        return TypeAdapter(cls).validate_python({**text, "topology": topology})

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


def fit_all(points: Sequence[Point], topology: Topology = FLAT, engine: str = "") -> Fits:
    """One fit for each strategy among the points, and one for those made of counted messages.

    A strategy whose points do not suffice is skipped, with the reason.

    Args:
        points: measurements of one backend.
        topology: what they were taken to share.
        engine: whose collectives were measured.
    """
    names = dict.fromkeys(point.strategy for point in points)
    groups = {name: [p for p in points if p.strategy == name] for name in names}
    counted = [p for p in points if p.strategy in STRATEGIES and STRATEGIES[p.strategy].counted]
    fits: dict[str, Fit] = {}
    skipped: dict[str, str] = {}
    for name, group in {**groups, "": counted}.items():
        try:
            fits[name] = fit(group)
        except UserError as error:
            skipped[name or "point_to_point"] = str(error)
    point_to_point = fits.pop("", None)
    return Fits(point_to_point, fits, skipped, str(topology), engine)
