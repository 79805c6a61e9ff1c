"""The devices a plan is for: memory, arithmetic, links, and what of them is reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.cost.link import Link
from dualml.errors import UserError

#: Devices of a search, and of a node.
MOST_DEVICES = 1_000_000


@dataclass(frozen=True)
class Reached:
    """What programs reach of a device's peaks; fitted to published runs (`planner.fitting`).

    Args:
        products: share of the peak that matrix products reach.
        traffic: bytes that everything else moves in the device's memory on the way forward, for
            each byte it keeps for the way back.
        links: share of the links' bandwidth.
        gathers: share of that again which ZeRO-3's messages reach, a layer at a time.
    """

    products: float
    traffic: float
    links: float
    gathers: float


@dataclass(frozen=True)
class Cluster:
    """Equal devices on equal nodes.

    Args:
        devices: how many.
        node: of them on a node; on one node all devices use ``inside``.
        memory: bytes of a device that a plan may fill.
        peak: operations per second.
        bandwidth: bytes per second of its memory.
        inside: link of a device to another one of its node.
        between: a device's port to other nodes, one for each device.
        reached: what of this is reached.
        overlap: share of the way back behind which messages of the replicas can hide, 0 to 1.

    Raises:
        UserError: a number that cannot be.
    """

    devices: int
    node: int
    memory: float
    peak: float
    bandwidth: float
    inside: Link
    between: Link
    reached: Reached
    overlap: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MOST_DEVICES:
            raise UserError(f"--devices is from 1 to {MOST_DEVICES:,}; received {self.devices:,}")
        if not 1 <= self.node <= MOST_DEVICES:
            raise UserError(f"--node is from 1 to {MOST_DEVICES:,}; received {self.node:,}")
        rates = {"--memory": self.memory, "--peak": self.peak, "--hbm": self.bandwidth}
        for name, value in {**rates, "--efficiency": self.reached.products}.items():
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name} must be above 0; received {value:g}")
        for name, value in (("--efficiency", self.reached.products), ("--overlap", self.overlap)):
            if not 0 <= value <= 1:
                raise UserError(f"{name} is from 0 to 1; received {value:g}")
        shares = self.reached.links, self.reached.gathers
        if not all(0 < share <= 1 for share in shares) or not 0 <= self.reached.traffic <= 100:
            raise UserError(f"what links and memory reach cannot be {self.reached}")

    def link(
        self, members: Any, stride: Any, ring: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """α and β among ``members`` devices that stand ``stride`` apart.

        A ring that leaves its nodes has on each of them as many ports as members: a node passes on
        what each member sends through all of them (NCCL's rings do), but never faster than inside.
        A message that is no ring's has its sender's port.
        """
        members, stride = np.asarray(members), np.asarray(stride)
        # Some group straddles two nodes, unless there is but one.
        away = (members > 1) & (self.node % (members * stride) != 0) & (self.devices > self.node)
        ports = np.clip(self.node // stride, 1, members) if ring else 1
        share = self.reached.links
        beta = np.maximum(self.inside.beta_s_per_byte, self.between.beta_s_per_byte / ports)
        beta = np.where(away, beta, self.inside.beta_s_per_byte) / share
        alpha = np.where(away, self.between.alpha_s, self.inside.alpha_s)
        return alpha.astype(float), beta.astype(float)
