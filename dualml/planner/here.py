"""Seconds of an update on the ranks of this machine, fitted to some of them.

The planner prices a layout for devices of its own each; ranks of one machine share its cores. Here
n ranks with one thread each on P cores work at the same time as far as they find a core:

    seconds = max(critical path, what all ranks do together / P)

The critical path is `planner.seconds` of the layout. What a rank does is that without its bubble:
while it waits for a stage, another one may have the core. With n ≤ P the path is the longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.cost.link import Link
from dualml.errors import UserError
from dualml.planner.cluster import Cluster, Reached
from dualml.planner.engine import DUALML
from dualml.planner.layouts import Layouts
from dualml.planner.seconds import seconds
from dualml.planner.shape import Shape

PRECISION = DUALML.precisions["fp32"]
#: What is not fitted: what is reached is in the rates themselves.
REACHED = Reached(products=1.0, traffic=1.0, links=1.0, gathers=1.0)
#: Lowest, first and highest value of each of `Machine`'s constants.
BOUNDS = {
    "flops": (1e8, 3e10, 1e13), "bandwidth": (1e6, 3e9, 1e13), "alpha_s": (1e-7, 3e-4, 1e-1),
    "beta_s_per_byte": (1e-12, 1e-9, 1e-5),
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """What one rank with one thread does.

    Args:
        cores: P that the ranks share.
        flops: operations of matrix products per second.
        bandwidth: bytes that everything else moves per second, for each byte that is kept.
        alpha_s, beta_s_per_byte: of a message between two ranks.
    """

    cores: int
    flops: float
    bandwidth: float
    alpha_s: float
    beta_s_per_byte: float

    def predict(self, shape: Shape, x: Layouts) -> float:
        """Seconds of an update of one layout."""
        n = int(x.devices[0])
        link = Link(self.alpha_s, self.beta_s_per_byte)
        cluster = Cluster(n, n, 1.0, self.flops, self.bandwidth, link, link, REACHED)
        of = seconds(shape, x, cluster, PRECISION, True, DUALML).describe(0)
        path = sum(of.values())
        return max(path, n * (path - of["bubble"]) / self.cores)


@dataclass(frozen=True)
class Point:
    """A layout that was timed: seconds of an update."""

    name: str
    shape: Shape
    layout: Layouts
    seconds: float


def fit(points: Sequence[Point], cores: int) -> Machine:
    """Least squares of log(predicted / measured).

    Raises:
        UserError: too few, or none with messages.
    """
    from scipy.optimize import least_squares

    alone = [point for point in points if point.layout.devices[0] == 1]
    if len(alone) < 2 or len(points) - len(alone) < 2:
        raise UserError(
            f"{len(alone)} layouts of one rank and {len(points) - len(alone)} of several leave "
            "constants open; time two of each at least, of different sizes"
        )
    low, start, high = (np.log(values) for values in zip(*BOUNDS.values(), strict=True))

    def machine(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Machine:
        return Machine(cores, *np.exp(logs).tolist())

    def residuals(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
        own = machine(logs)
        return [float(np.log(own.predict(p.shape, p.layout) / p.seconds)) for p in points]

    return machine(least_squares(residuals, start, bounds=(low, high)).x)
