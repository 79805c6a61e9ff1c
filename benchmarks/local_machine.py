"""Seconds of an update on the ranks of one machine, from constants fitted to some timed layouts.

The planner prices a layout for devices of its own; ranks of one machine share its cores. Here n
ranks with one thread each run on P cores, at the same time as far as there are cores:

    seconds = max(critical path, core seconds of all ranks together / P + waits)

The critical path is `planner.seconds` of the layout. A rank takes a core for the path without its
waiting times: for stages before and after it, and for messages, of which only copies and sums are
work, with a cost per byte. If ranks take turns on a core, a message finds the other side ready and
its bytes in cache: its work is a fraction of that between two cores. The α of the framework's
all-reduce, which tensor-parallel ranks use, and that of dualml's own messages are separate
constants. Waits are the bubble of a pipeline of P stages, and α of each message: ranks of a
collective wait for one another, and none computes. Both sides are measured: wall-clock time, and
the core time that the system reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.cost.link import Link
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import fullest_parameters
from dualml.planning.planner.seconds import seconds
from dualml.planning.planner.shape import Shape

PRECISION = DUALML.precisions["fp32"]
#: Lower bound, initial value and upper bound of each constant of `MachineModel`.
BOUNDS = {
    "flops": (1e8, 3e10, 1e13),
    "bandwidth": (1e6, 3e9, 2e10),
    "moves": (1e-2, 1.0, 9e1),
    "call_s": (1e-7, 1e-4, 1e-1),
    "alpha_s": (1e-7, 3e-4, 1e-1),
    "sum_alpha_s": (1e-7, 3e-4, 1e-1),
    "beta_s_per_byte": (1e-12, 1e-9, 1e-5),
    "core_alpha_s": (1e-7, 1e-4, 1e-1),
    "core_sum_alpha_s": (1e-7, 1e-4, 1e-1),
    "core_beta_s_per_byte": (1e-12, 1e-9, 1e-5),
    "turns": (1e-2, 1.0, 1e2),
}


@dataclass(frozen=True)
class MachineModel:
    """Constants of one rank with one thread on this machine.

    Args:
        cores: P, the cores that the ranks share.
        flops: operations of matrix products per second.
        bandwidth: bytes per second that the optimizer reads and writes.
        moves: how often a layer moves each saved byte, in addition to its matrix products.
        call_s: fixed seconds of a layer per micro-batch.
        alpha_s, sum_alpha_s, beta_s_per_byte: of a message between two ranks, and of one inside the
            framework's all-reduce.
        core_alpha_s, core_sum_alpha_s, core_beta_s_per_byte: core time of these.
        turns: factor on this core time if there are more ranks than cores.
    """

    cores: int
    flops: float
    bandwidth: float
    moves: float
    call_s: float
    alpha_s: float
    sum_alpha_s: float
    beta_s_per_byte: float
    core_alpha_s: float
    core_sum_alpha_s: float
    core_beta_s_per_byte: float
    turns: float

    def predict(self, shape: Shape, x: Layouts, cores: int | None = None) -> float:
        """Return the wall-clock seconds of an update of the first layout in ``x``, on ``cores``
        cores (default: all)."""
        cores = cores or self.cores
        own = self._part_seconds(shape, x, self.alpha_s, self.sum_alpha_s, self.beta_s_per_byte)
        m, pp, replicas = int(x.micro_batches[0]), int(x.pp[0]), int(x.dp[0] * x.tp[0])
        calls = self.call_s * shape.layers / pp
        path = sum(own.values()) + (m + pp - 1) * calls
        # With fewer cores than stages, a pipeline is only as deep as the number of cores.
        deep = min(max(cores / replicas - 1, 0.0) / max(pp - 1, 1), 1.0)
        quick = self._part_seconds(shape, x, 0.0, 0.0, self.beta_s_per_byte)
        alphas = sum(own[part] - quick[part] for part in own if part != "bubble")
        waits = deep * (own["bubble"] + (pp - 1) * calls) + (alphas if cores > 1 else 0.0)
        return max(path, self.core_seconds(shape, x, cores) / cores + waits)

    def core_seconds(self, shape: Shape, x: Layouts, cores: int | None = None) -> float:
        """Return the core seconds of all ranks together for an update of the first layout in ``x``;
        ``cores`` (default: all) only decides whether ranks take turns."""
        n = int(x.devices[0])
        share = self.turns if n > (cores or self.cores) else 1.0
        constants = (self.core_alpha_s, self.core_sum_alpha_s, self.core_beta_s_per_byte)
        link = [share * each for each in constants]
        own = self._part_seconds(shape, x, *link)
        # All stages together compute as much as one stage with every layer.
        whole = self._part_seconds(shape, replace(x, pp=np.ones_like(x.pp)), *link)
        layers = sum(whole[part] for part in ("products", "traffic", "recompute", "tensor"))
        layers += self.call_s * shape.layers * int(x.micro_batches[0])
        ends = sum(own[part] for part in ("pipeline", "replicas", "update"))
        return int(x.dp[0] * x.tp[0]) * layers + n * ends

    def _part_seconds(
        self, shape: Shape, x: Layouts, alpha: float, of_sums: float, beta: float
    ) -> dict[str, float]:
        """Return part → seconds of one layout for the given constants of messages."""
        own = self._layout_seconds(shape, x, Link(alpha, beta))
        own["tensor"] = self._layout_seconds(shape, x, Link(of_sums, beta))["tensor"]
        # Each micro-batch but the first reads the sum of gradients, adds its own, and writes it.
        added = 3 * PRECISION.gradients * float(fullest_parameters(shape, x, DUALML)[0])
        own["update"] += (int(x.micro_batches[0]) - 1) * added / self.bandwidth
        return own

    def _layout_seconds(self, shape: Shape, x: Layouts, link: Link) -> dict[str, float]:
        """Return part → seconds of one layout with the same link between all ranks."""
        n = int(x.devices[0])
        reached = Efficiency(products=1.0, traffic=self.moves, links=1.0)
        cluster = Cluster(n, n, 1.0, self.flops, self.bandwidth, link, link, reached)
        return seconds(shape, x, cluster, PRECISION, True, DUALML).describe(0)


@dataclass(frozen=True)
class TimedLayout:
    """A layout that was timed.

    Attributes:
        name: label of the layout.
        shape, layout: model and layout.
        seconds: wall-clock seconds of an update.
        core_seconds: core seconds of all ranks together.
        cores: number of cores that they had; None: all.
    """

    name: str
    shape: Shape
    layout: Layouts
    seconds: float
    core_seconds: float
    cores: int | None = None


def fit_machine(points: Sequence[TimedLayout], cores: int) -> MachineModel:
    """Fit the constants by least squares of log(predicted / measured), over wall-clock and core
    seconds.

    Raises:
        UserError: fewer than two layouts of one rank, or than two of several.
    """
    from scipy.optimize import least_squares

    alone = [point for point in points if point.layout.devices[0] == 1]
    if len(alone) < 2 or len(points) - len(alone) < 2:
        raise UserError(
            f"{len(alone)} layouts of one rank and {len(points) - len(alone)} of several leave "
            "constants open; time two of each at least, of different sizes"
        )
    low, start, high = (np.log(values) for values in zip(*BOUNDS.values(), strict=True))

    def machine(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> MachineModel:
        return MachineModel(cores, *np.exp(logs).tolist())

    def residuals(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
        own = machine(logs)
        pairs = [(own.predict(p.shape, p.layout, p.cores), p.seconds) for p in points]
        pairs += [(own.core_seconds(p.shape, p.layout, p.cores), p.core_seconds) for p in points]
        return [float(np.log(predicted / measured)) for predicted, measured in pairs]

    return machine(least_squares(residuals, start, bounds=(low, high)).x)
