"""The cost of aggregation: counted, fitted to measurements, and predicted for any number of
ranks."""

from __future__ import annotations

from dualml.aggregation import StepGroup
from dualml.aggregation.slow import Straggler
from dualml.cost.closed import Cost, cost, names, stages
from dualml.cost.fits import Fits, fit_all
from dualml.cost.link import Link
from dualml.cost.model import Fit, Point, fit
from dualml.cost.predict import Prediction, predict
from dualml.cost.simulate import Simulated, simulate
from dualml.cost.topology import FLAT, Topology

__all__ = [
    "FLAT",
    "Cost",
    "Fit",
    "Fits",
    "Link",
    "Point",
    "Prediction",
    "Simulated",
    "Straggler",
    "StepGroup",
    "Topology",
    "cost",
    "fit",
    "fit_all",
    "names",
    "predict",
    "simulate",
    "stages",
]
