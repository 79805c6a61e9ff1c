"""Splits in MindSpore against the unsplit model; split.py starts them on each rank."""

from __future__ import annotations

from typing import Any

from efficiency import own_core
from ourparallel import samples
from oursplit import race, races

from dualml.interface.bench.timing import Times


def train(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return the milliseconds of an update, by variant, of every comparison."""
    own_core(comm.rank)
    x, y = samples()
    return race(comm, races(comm, x, y, argument["batch"], argument["updates"]), argument["rounds"])
