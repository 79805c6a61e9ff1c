"""The cost of aggregation: counted, fitted to measurements, and predicted for any number of
ranks."""

from __future__ import annotations

from dualml.common.former_members import former_names
from dualml.parallel.aggregation import StepGroup
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost.closed_form import Cost, cost, names, stages
from dualml.planning.cost.fits import Fits, fit_all
from dualml.planning.cost.link import Link
from dualml.planning.cost.model import Fit, Point, fit
from dualml.planning.cost.predict import Prediction, predict
from dualml.planning.cost.simulate import Simulated, simulate
from dualml.planning.cost.topology import FLAT, Topology

__all__ = [
    "FLAT",
    "Cost",
    "Fit",
    "Fits",
    "Link",
    "Point",
    "Prediction",
    "Simulated",
    "StepGroup",
    "Straggler",
    "Topology",
    "cost",
    "fit",
    "fit_all",
    "names",
    "predict",
    "simulate",
    "stages",
]

__getattr__ = former_names(__name__, {"Slow": "Straggler"})
