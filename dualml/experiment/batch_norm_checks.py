"""Checks of arms whose model has batch normalisation, which needs the statistics of a whole
batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.vision import BatchNorm2d
from dualml.common.errors import UserError
from dualml.experiment.arm import Arm
from dualml.parallel.aggregation import ASYNCHRONOUS


def check_batch_norm(arm: Arm, spec: ModelSpec, samples: int) -> None:
    """Raise `UserError` for an arm that trains a model with batch normalisation under a setting
    that does not keep its running statistics (`find_excluded_setting`), or with batches of one
    value per channel.

    Args:
        spec: the arm's model.
        samples: number of samples of the training set.
    """
    if what := find_excluded_setting(arm):
        raise UserError(
            f"model {spec.name!r} has batch normalisation, whose running statistics belong to no "
            f"parameter and to no micro-batch; {what} does not keep them: leave it out, or use a "
            "model without, such as lenet"
        )
    least = min(batch_sizes(arm, samples))
    for layer, values in pixels_per_channel(spec).items():
        if least * values < 2:
            raise UserError(
                f"batch normalisation needs two values per channel at least, and {layer!r} would "
                f"have {least * values} of {least} sample with {values} pixel; use a batch_size "
                "(of each rank, and what is left at the end of an epoch or a chunk) of 2 or more"
            )


def find_excluded_setting(arm: Arm) -> str:
    """Return the arm's first setting that does not keep the running statistics of batch
    normalisation, as text for a message; empty if there is none."""
    found = {
        "split": arm.split is not None,
        f"zero = {arm.zero}": bool(arm.zero),
        "offload": arm.offload is not None,
        f"recompute = {arm.recompute}": arm.recompute != "none",
        f"method = {arm.method}": bool(arm.method),
        f"strategy = {ASYNCHRONOUS}": arm.aggregation.strategy == ASYNCHRONOUS,
    }
    return next((what for what, there in found.items() if there), "")


def batch_sizes(arm: Arm, samples: int) -> Iterator[int]:
    """Yield the numbers of samples over which one rank computes statistics together (its part of a
    batch, or a chunk of it) in an epoch over ``samples`` samples, as far as the settings determine
    them; for a partition only those of a full batch. A number may come more than once."""
    pool = min(arm.samples or samples, samples)
    size = min(arm.batch_size or pool, pool)
    left = pool % size if arm.batch_size and not arm.partition else 0
    for whole in {size, left} - {0}:
        for part in {whole // arm.world_size, math.ceil(whole / arm.world_size)} - {0}:
            yield from {min(part, arm.chunk), part % arm.chunk or min(part, arm.chunk)}


def pixels_per_channel(spec: ModelSpec) -> dict[str, int]:
    """Return the number of pixels per channel and sample of each batch normalisation layer, by
    name."""
    shapes = spec.shapes()
    return {
        name: math.prod(shapes[name][1:])
        for name, layer in spec.layers
        if isinstance(layer, BatchNorm2d)
    }
