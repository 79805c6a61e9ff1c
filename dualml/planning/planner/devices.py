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
    """

    name: str
    source: str
    memory: int
    peaks: Mapping[str, float]
    bandwidth: float
    inside: float
    between: float
    node: int


@cache
def devices() -> Mapping[str, Device]:
    """Return name → device of the package's ``devices.toml``."""
    return {name: _device(name, entry) for name, entry in _table("devices").items()}


@cache
def fitted_efficiency() -> Efficiency:
    """Return the efficiency fitted to the published runs on A100s (`docs/efficiency.py`)."""
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
    return Device(
        name,
        entry["source"],
        units.parse_bytes(entry["memory"]),
        {key: units.parse_flops(entry[key]) for key in ("mixed", "fp32")},
        units.parse_rate(entry["bandwidth"]),
        units.parse_rate(entry["inside"]),
        units.parse_rate(entry["between"]),
        entry["node"],
    )


def _table(name: str) -> dict[str, Any]:
    """Return the content of ``NAME.toml`` in this package."""
    return from_toml((files("dualml.planning.planner") / f"{name}.toml").read_text("utf-8"))
