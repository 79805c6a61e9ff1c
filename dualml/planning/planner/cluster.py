"""The devices of a plan: memory, arithmetic, links, and the efficiency with which they are used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.planning.cost.link import Link

#: Largest number of devices of a search, and of a node.
MAX_DEVICES = 1_000_000


@dataclass(frozen=True)
class Efficiency:
    """Fractions of a device's peaks that programs reach, fitted to published runs
    (`docs/efficiency.py`).

    Args:
        products: fraction of the peak that matrix products reach.
        traffic: bytes that all other operations move in device memory in the forward pass, per byte
            saved for the backward pass.
        links: fraction of the links' bandwidth.
        gathers: further fraction of it that ZeRO-3's messages reach, a layer at a time.
    """

    products: float
    traffic: float
    links: float
    gathers: float


@dataclass(frozen=True)
class Cluster:
    """A cluster of equal devices on equal nodes.

    Args:
        devices: number of devices.
        node: devices per node; within a node, devices use ``inside``.
        memory: bytes of a device that a plan may use.
        peak: operations per second of a device.
        bandwidth: bytes per second of its memory.
        inside: link between devices of one node.
        between: a device's port to other nodes, one per device.
        reached: efficiency of the devices and links.
        overlap: share of the backward pass that can hide messages between replicas, 0 to 1.

    Raises:
        UserError: an invalid number.
    """

    devices: int
    node: int
    memory: float
    peak: float
    bandwidth: float
    inside: Link
    between: Link
    reached: Efficiency
    overlap: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MAX_DEVICES:
            raise UserError(f"--devices is from 1 to {MAX_DEVICES:,}; received {self.devices:,}")
        if not 1 <= self.node <= MAX_DEVICES:
            raise UserError(f"--node is from 1 to {MAX_DEVICES:,}; received {self.node:,}")
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
        """Return α and β, in seconds and seconds per byte, among ``members`` devices that are
        ``stride`` ranks apart; arrays for many groups at once.

        A ring that spans nodes has as many ports on each node as it has members there: a node
        forwards what each member sends through all of them (as NCCL's rings do), but never faster
        than inside. A message outside a ring uses its sender's port.
        """
        members, stride = np.asarray(members), np.asarray(stride)
        # Some group spans two nodes, unless there is only one node.
        away = (members > 1) & (self.node % (members * stride) != 0) & (self.devices > self.node)
        ports = np.clip(self.node // stride, 1, members) if ring else 1
        share = self.reached.links
        beta = np.maximum(self.inside.beta_s_per_byte, self.between.beta_s_per_byte / ports)
        beta = np.where(away, beta, self.inside.beta_s_per_byte) / share
        alpha = np.where(away, self.between.alpha_s, self.inside.alpha_s)
        return alpha.astype(float), beta.astype(float)
