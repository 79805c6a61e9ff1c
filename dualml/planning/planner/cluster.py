"""The devices of a plan: memory, arithmetic, links, and the efficiency with which they are used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.planning.cost.link import Link
from dualml.planning.cost.topology import ring_ports, spans_nodes
from dualml.planning.planner.kernels import Chip, ProductSpeed
from dualml.planning.planner.software import PLAIN, TrainingSoftware

#: Largest number of devices of a search, and of a node.
MAX_DEVICES = 1_000_000


@dataclass(frozen=True)
class Efficiency:
    """Fractions of measured speeds that whole training programs reach, fitted to published runs
    (`docs/efficiency.py`).

    Args:
        products: fraction of the speed of the device's best product that large products reach.
        traffic: bytes that all operations but products move in device memory in the forward pass,
            per byte saved for the backward pass.
        links: fraction of the bandwidth inside a node.
        ports: fraction of the bandwidth between nodes that collectives reach.
        stores: fraction of the time of reading and writing a product's result that arithmetic does
            not hide.
        exposed: fraction of the messages of tensor parallelism that stays visible where the
            software sends them beside products.
        contention: seconds by which a hidden second of messages slows the computation down.
        imbalance: work by which the busiest of many devices exceeds the mean, where experts are
            distributed.
        launch: seconds in which the host launches a kernel; assumed, neither measured nor fitted.
    """

    products: float
    traffic: float
    links: float
    ports: float = 1.0
    stores: float = 0.0
    exposed: float = 1.0
    contention: float = 0.0
    imbalance: float = 0.0
    launch: float = 0.0

    def check(self) -> None:
        """Raise `UserError` for a value out of range; ``products`` is not checked here but by
        `Cluster`."""
        shares = self.links, self.ports
        parts = self.stores, self.exposed, self.contention, self.imbalance
        if (
            not all(0 < share <= 1 for share in shares)
            or not all(0 <= part <= 1 for part in parts)
            or not 0 <= self.traffic <= 100
            or not 0 <= self.launch < 1
        ):
            raise UserError(f"what links, memory and kernels reach cannot be {self}")


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
        overlap: share of the computation beside which messages between replicas run, 0 to 1.
        chip: how the device's kernels reach its peak; by default all products reach it equally.
        software: what the training software does beside computing; ``overlap`` replaces its value.
        switch_sums: bytes per second that the switch of a node adds up for every device; 0: it does
            not add.

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
    chip: Chip = field(default_factory=Chip)
    software: TrainingSoftware = PLAIN
    switch_sums: float = 0.0

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
        self.reached.check()

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
        away = self.spans_nodes(members, stride)
        ports = ring_ports(self.node, members, stride) if ring else np.ones_like(members)
        inside = self.inside.beta_s_per_byte / self.reached.links
        outside = self.between.beta_s_per_byte / (ports * (self.reached.ports if ring else 1))
        beta = np.where(away, np.maximum(inside, outside), inside)
        # Of the steps around a ring, one in ``ports`` leaves the node.
        mean = (self.between.alpha_s + (ports - 1) * self.inside.alpha_s) / ports
        alpha = np.where(away, mean, self.inside.alpha_s)
        return alpha.astype(float), beta.astype(float)

    def spans_nodes(self, members: Any, stride: Any) -> Any:
        """Return whether some group of ``members`` devices that are ``stride`` ranks apart spans
        two nodes: a bool array. False if there is only one node."""
        members, stride = np.asarray(members), np.asarray(stride)
        return spans_nodes(self.node, members, stride) & (self.devices > self.node)

    @property
    def products(self) -> ProductSpeed:
        """Speeds of the matrix products of a layer."""
        flops = self.peak * self.chip.product_share * self.reached.products
        return ProductSpeed(self.chip, flops, self.bandwidth, self.reached.stores)

    @property
    def wide_products(self) -> ProductSpeed:
        """Speeds of products that stay in 16 bits where those of a layer are in a smaller type."""
        flops = self.wide_peak * self.chip.wide_share * self.reached.products
        return ProductSpeed(self.chip, flops, self.bandwidth, self.reached.stores)

    @property
    def wide_peak(self) -> float:
        """Operations per second of the device in 16 bits, or in the precision itself if that is
        wider."""
        return self.peak / self.chip.low_precision
