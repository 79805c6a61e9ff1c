"""One framework on one device inside one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from dualml.backend.ability import Able
from dualml.backend.recipe import Array, Recipe
from dualml.backend.training import Training


class Backend(Able, ABC):
    """What every backend can do; made by `BackendInfo.create` from a device and a number of
    threads, in the worker process alone.

    Attributes:
        name: as in its `BackendInfo`.
        dtype: of the numbers it computes with, ``float32`` or ``float64``.
    """

    name: str
    dtype: str

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Versions, device, threads and determinism settings, as recorded in the run folder."""

    @abstractmethod
    def training(self, recipe: Recipe) -> Training:
        """Put everything a trial needs on the device."""

    @abstractmethod
    def read(self, losses: Sequence[Any]) -> Array:
        """Lazy losses of `Training.step` → float64 array; the only synchronisation of a training
        loop."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; called before every reading of the clock."""
