"""The fits of one run, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.parallel.aggregation import ASYNCHRONOUS, STRATEGIES
from dualml.planning.cost.closed_form import LOCAL_SGD
from dualml.planning.cost.link import Link
from dualml.planning.cost.model import Fit, Point, fit
from dualml.planning.cost.topology import FLAT, Topology

#: Strategy without measurements of its own → strategy whose constants are used instead.
STAND_IN = {LOCAL_SGD: "all_reduce", ASYNCHRONOUS: "parameter_server"}


@dataclass(frozen=True)
class Fits:
    """The fits of one run: one over all counted strategies together, and one per strategy, because
    a native collective has constants of its own.

    Attributes:
        point_to_point: fit of all strategies whose messages are sent one by one; None if not
            fitted.
        strategies: name → fit.
        skipped: name → reason why there is no fit.
        topology: topology assumed for the points, as `Topology.parse` reads it.
        engine: engine whose collectives were measured, if `dualml.planning.cost.engines` knows it.
    """

    point_to_point: Fit | None = None
    strategies: dict[str, Fit] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    topology: str = "flat"
    engine: str = ""

    def link(self, name: str) -> Link:
        """Return the constants for a strategy: its own; else those of its stand-in, a strategy
        measured in its place; else the point-to-point ones.

        Raises:
            UserError: no fit applies; the message lists the existing ones.
        """
        own = self.strategies.get(name) or self.strategies.get(STAND_IN.get(name, ""))
        fit = own or self.point_to_point
        if fit is None:
            known = ", ".join(self.strategies) or "none"
            raise UserError(f"no fit for {name} and none point to point; there are: {known}")
        return fit.link

    def describe(self) -> JsonObject:
        """Return the fits as JSON: ``{"topology", "point_to_point", "strategies", "skipped"}``, and
        ``engine`` if set."""
        content = asdict(self)
        if not self.engine:
            del content["engine"]
        return content

    @classmethod
    def restore(cls, text: JsonObject) -> Fits:
        """Make fits from the JSON values that `describe` returns."""
        from pydantic import TypeAdapter

        topology = str(Topology.parse(text["topology"]))
        return TypeAdapter(cls).validate_python({**text, "topology": topology})

    @classmethod
    def read(cls, path: Path) -> Fits:
        """Read fits from a JSON file.

        Raises:
            UserError: the file does not exist or does not contain fits.
        """
        from dualml.common.files import convert_read_errors
        from dualml.experiment.store.costs import read_fits

        record = read_fits(path)
        with convert_read_errors(f"{path}: not a file of fits"):
            return cls.restore(record.describe())


def fit_all(points: Sequence[Point], topology: Topology = FLAT, engine: str = "") -> Fits:
    """Fit each strategy among the points, and all strategies with counted messages together.

    A strategy with too few points, or points that do not determine α and β, is skipped, with the
    reason. γ is not fitted.

    Args:
        points: measurements of one backend.
        topology: topology that they are assumed to share; it is only recorded.
        engine: engine whose collectives were measured; it is only recorded.
    """
    names = dict.fromkeys(point.strategy for point in points)
    groups = {name: [p for p in points if p.strategy == name] for name in names}
    counted = [
        p for p in points if p.strategy in STRATEGIES and STRATEGIES[p.strategy].is_point_to_point
    ]
    fits: dict[str, Fit] = {}
    skipped: dict[str, str] = {}
    for name, group in {**groups, "": counted}.items():
        try:
            fits[name] = fit(group)
        except UserError as error:
            skipped[name or "point_to_point"] = str(error)
    point_to_point = fits.pop("", None)
    return Fits(point_to_point, fits, skipped, str(topology), engine)
