"""Devices by name, and the fitted efficiency with which programs use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dualml.common.errors import UserError, did_you_mean
from dualml.common.parse import from_toml
from dualml.planning.cost import units
from dualml.planning.planner.cluster import Efficiency
from dualml.planning.planner.kernels import AttentionKernel, Chip

#: Precisions that a device may have a peak for.
PEAKS = ("mixed", "fp32", "tf32", "fp8")
#: Share of a link that a ring reaches where nobody measured it (NVIDIA/nccl-tests, issue 212).
PROTOCOL_SHARE = 0.82


@dataclass(frozen=True)
class Device:
    """Data sheet of a device, in bytes and per second.

    Attributes:
        source: where the numbers are from.
        memory: bytes of device memory.
        peaks: precision → operations per second.
        bandwidth: bytes per second of device memory.
        inside, between: bandwidth of its links within and between nodes, in one direction.
        node: devices per server of the manufacturer.
        bus: bytes per second that rings inside a node reach.
        sums: bytes per second that the switch of a node adds up for every device; 0: none.
        processors: multiprocessors; 0: not known.
        products: precision → operations per second of the best measured product.
        attention: kernel → its measured speed.
    """

    name: str
    source: str
    memory: int
    peaks: Mapping[str, float]
    bandwidth: float
    inside: float
    between: float
    node: int
    bus: float
    sums: float
    processors: int
    products: Mapping[str, float]
    attention: Mapping[str, AttentionKernel]

    def chip(self, precision: str) -> Chip:
        """Return how the device's kernels reach its peak in this precision. Without a measurement
        in this precision the share of the 16-bit peak is assumed; without any, the whole peak."""
        base = self.peaks["mixed"]
        wide = self.products.get("mixed", base) / base
        share = (
            self.products[precision] / self.peaks[precision] if precision in self.products else wide
        )
        ratio = max(1.0, self.peaks[precision] / base)
        return Chip(self.processors, share, ratio, wide, dict(self.attention))


@cache
def devices() -> Mapping[str, Device]:
    """Return name → device of the package's ``devices.toml``."""
    return {name: _device(name, entry) for name, entry in _table("devices").items()}


@cache
def fitted_efficiency() -> Efficiency:
    """Return the efficiency fitted to published runs (`docs/efficiency.py`)."""
    return Efficiency(**_table("reached")["reached"])


def find_device(name: str) -> Device:
    """Return a device by its name.

    Raises:
        UserError: an unknown name.
    """
    if name not in devices():
        raise UserError(
            f"unknown device {name!r}{did_you_mean(name, devices())}; or describe yours with "
            "--peak, "
            "--hbm, --memory, --inside, --link and --node"
        )
    return devices()[name]


def _device(name: str, entry: Mapping[str, Any]) -> Device:
    """Return a device from its entry in ``devices.toml``, with quantities such as ``80 GB``
    parsed."""
    measured = {"mixed": "product", "fp8": "product_fp8"}
    return Device(
        name,
        entry["source"],
        units.parse_bytes(entry["memory"]),
        {key: units.parse_flops(entry[key]) for key in PEAKS if key in entry},
        units.parse_rate(entry["bandwidth"]),
        units.parse_rate(entry["inside"]),
        units.parse_rate(entry["between"]),
        entry["node"],
        units.parse_rate(entry["bus"])
        if "bus" in entry
        else PROTOCOL_SHARE * units.parse_rate(entry["inside"]),
        units.parse_rate(entry["sums"]) if "sums" in entry else 0.0,
        entry.get("processors", 0),
        {key: units.parse_flops(entry[name]) for key, name in measured.items() if name in entry},
        {key: AttentionKernel(**value) for key, value in entry.get("attention", {}).items()},
    )


def _table(name: str) -> dict[str, Any]:
    """Return the content of ``NAME.toml`` in this package."""
    return from_toml((files("dualml.planning.planner") / f"{name}.toml").read_text("utf-8"))
