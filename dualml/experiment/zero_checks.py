"""Checks of arms with ``zero``, see `dualml.parallel.zero`."""

from __future__ import annotations

from dualml.common.errors import UserError
from dualml.experiment.split import Split
from dualml.parallel.aggregation.buckets import BUCKET_BYTES
from dualml.parallel.aggregation.coordinates import COORDINATEWISE
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.zero.settings import NATIVE, STRATEGIES, Sharding


def sharding_of(zero: int, reduce: str, lower: bool, settings: Aggregation) -> Sharding:
    """Return the sharding of an arm with ZeRO stage ``zero``, the key ``zero_reduce`` as
    ``reduce``, and the aggregation ``settings``; ``lower`` says whether weights and gradients are
    held in low precision. Except in stage 1, ``bucket_bytes`` at its default counts as not set
    (None), because a plan also records it where it was left out."""
    said = zero == 1 or settings.bucket_bytes != BUCKET_BYTES
    bucket, native = settings.bucket_bytes if said else None, settings.strategy == NATIVE
    return Sharding(zero, reduce, bucket, native, settings.overlap, lower)


def check_sharded_aggregation(stage: int, settings: Aggregation) -> None:
    """Raise `UserError` for an aggregation that does not sum whole gradients as ZeRO of this stage
    (1, 2 or 3) does."""
    zero = f"zero = {stage}"
    if settings.strategy not in STRATEGIES:
        raise UserError(
            f"{zero} adds up gradients by reduce-scatter, which strategy = {settings.strategy} is "
            f"not; use ring (messages of dualml's own), {NATIVE} (the framework's collectives), or "
            "leave it out"
        )
    if settings.overlap and stage == 1:
        raise UserError(
            "zero = 1 adds up one whole gradient after the backward pass, beside which nothing is "
            "left to compute; leave out aggregation.overlap = true, or set zero = 2 or 3"
        )
    if settings.reduce in COORDINATEWISE:
        raise UserError(
            f"{zero} adds up gradients by reduce-scatter; aggregation.reduce = {settings.reduce} "
            "is no sum: use weighted, mean or sum"
        )
    for key, name in (("of", "target"), ("compress", "compress"), ("cut", "cut")):
        value = getattr(settings, key)
        if value != Aggregation.model_fields[key].default:
            raise UserError(
                f"{zero} adds up gradients as they are, unit by unit; leave out "
                f"aggregation.{name} = {str(value).lower()}"
            )


def check_replicas(split: Split) -> None:
    """Raise `UserError` for a split in which no ranks have the same parameters: without data
    parallel replicas and without several trainers."""
    if split.data == 1 and split.trainers == 1:
        raise UserError(
            "zero = 1 shards the state over ranks that have the same part of the model; with "
            "this split no two do: set split.data = 2 or more"
        )
