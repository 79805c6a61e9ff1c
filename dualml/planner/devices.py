"""Devices by name, and what programs reach of their peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dualml.cost import units
from dualml.errors import UserError, nearest
from dualml.parse import from_toml
from dualml.planner.cluster import Reached


@dataclass(frozen=True)
class Device:
    """As its maker gives it, in bytes and per second.

    Attributes:
        peaks: precision → operations.
        inside, between: bandwidth of its links, of one direction.
        node: devices of the maker's own server.
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
    """Name → device."""
    return {name: _device(name, entry) for name, entry in _table("devices").items()}


@cache
def reached() -> Reached:
    """What was fitted to the published runs of A100s (`planner.fitting`)."""
    return Reached(**_table("reached")["reached"])


def find(name: str) -> Device:
    """Raises `UserError` for an unknown name."""
    if name not in devices():
        raise UserError(
            f"unknown device {name!r}{nearest(name, devices())}; or describe yours with --peak, "
            "--hbm, --memory, --inside, --link and --node"
        )
    return devices()[name]


def _device(name: str, entry: Mapping[str, Any]) -> Device:
    return Device(
        name,
        entry["source"],
        units.nbytes(entry["memory"]),
        {key: units.flops(entry[key]) for key in ("mixed", "fp32")},
        units.rate(entry["bandwidth"]),
        units.rate(entry["inside"]),
        units.rate(entry["between"]),
        entry["node"],
    )


def _table(name: str) -> dict[str, Any]:
    return from_toml((files("dualml.planner") / f"{name}.toml").read_text("utf-8"))
