"""Cache of the models of one process, reused from trial to trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    CommOverlap,
    FrameworkDataParallel,
    GradientAccess,
    GradientBuckets,
    Training,
)
from dualml.parallel.aggregation import NATIVE
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.settings import Aggregation

T = TypeVar("T")


class ModelCache:
    """Cache of models by key. MindSpore compiles every new model, which can take longer than the
    trial, so trials that differ only in communication share one. Whoever takes a model from the
    cache loads weights and optimizer state into it."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self.buckets_by_key: dict[tuple[str, str], GradientBuckets] = {}

    def get_or_make_model(self, key: str, make: Callable[[], T]) -> T:
        """Return the model (or a rank's part of it) with this key; call ``make`` if there is none
        yet."""
        if key not in self.models:
            self.models[key] = make()
        model: T = self.models[key]
        return model

    def get_buckets(
        self,
        key: str,
        shapes: dict[str, tuple[int, ...]],
        settings: Aggregation,
        comm: Communicator,
    ) -> GradientBuckets:
        """Return the gradient buckets, made on first use, of the cached model with this key, in the
        layout that an arm's aggregation asks for; `KeyError` if there is no such model. All ranks
        call it."""
        buckets = bucket_layout(shapes, settings.bucket_bytes)
        name = (key, f"{settings.strategy == NATIVE} {settings.overlap} {buckets}")
        if name not in self.buckets_by_key:
            self.buckets_by_key[name] = make_buckets(self.models[key], settings, buckets, comm)
        return self.buckets_by_key[name]


def make_buckets(
    training: Training, settings: Aggregation, buckets: list[list[str]], comm: Communicator
) -> GradientBuckets:
    """Make the buckets of a model's gradients: the framework's native data parallelism or buckets
    that overlap with the backward pass, which sum over the ranks, or plain ones, which do not. All
    ranks call it.

    Args:
        training: the model.
        settings: the aggregation of the arm, which decides the kind.
        buckets: the parameter names in each bucket; ignored for native data parallelism.
        comm: the communicator; unused by plain buckets.
    """
    if settings.strategy == NATIVE:
        return training.require_capability(FrameworkDataParallel).make_framework_buckets(comm)
    if settings.overlap:
        return training.require_capability(CommOverlap).make_reducing_buckets(buckets, comm)
    return training.require_capability(GradientAccess).make_buckets(buckets)
