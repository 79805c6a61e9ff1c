"""The models of one process, kept from trial to trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dualml.aggregation import NATIVE
from dualml.aggregation.buckets import layout
from dualml.aggregation.settings import Aggregation
from dualml.backend import Divisible, NativeParallel, Overlapping, Pieces, Training
from dualml.communicator import Communicator

T = TypeVar("T")


class ModelCache:
    """MindSpore compiles every new model, which takes longer than many a trial: trials that differ
    only in how their ranks talk share one. Whoever gets it loads weights and state."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self.divided: dict[tuple[str, str], Pieces] = {}

    def keep(self, key: str, make: Callable[[], T]) -> T:
        """The model of this key, or a rank's part of it; made where there is none yet."""
        if key not in self.models:
            self.models[key] = make()
        model: T = self.models[key]
        return model

    def pieces(
        self,
        key: str,
        shapes: dict[str, tuple[int, ...]],
        settings: Aggregation,
        comm: Communicator,
    ) -> Pieces:
        """The updates of the model of this key in parts, as an arm's aggregation wants them."""
        buckets = layout(shapes, settings.bucket_bytes)
        name = (key, f"{settings.strategy == NATIVE} {settings.overlap} {buckets}")
        if name not in self.divided:
            self.divided[name] = divide(self.models[key], settings, buckets, comm)
        return self.divided[name]


def divide(
    training: Training, settings: Aggregation, buckets: list[list[str]], comm: Communicator
) -> Pieces:
    if settings.strategy == NATIVE:
        return training.ability(NativeParallel).native(comm)
    if settings.overlap:
        return training.ability(Overlapping).overlapping(buckets, comm)
    return training.ability(Divisible).pieces(buckets)
