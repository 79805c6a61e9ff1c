"""Checks of arms with ``zero``, see `dualml.parallel.zero`."""

from __future__ import annotations

from dualml.common.errors import UserError
from dualml.experiment.split import Split
from dualml.parallel.aggregation.buckets import BUCKET_BYTES
from dualml.parallel.aggregation.coordinates import COORDINATEWISE
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.zero.settings import NATIVE, STRATEGIES, Sharding


def sharding_of(zero: int, reduce: str, lower: bool, settings: Aggregation) -> Sharding:
    """Return the sharding of an arm with ZeRO stage ``zero``. In stages 2 and 3 ``bucket_bytes`` at
    its default counts as not set (None), because a plan also records it where it was left out."""
    said = zero == 1 or settings.bucket_bytes != BUCKET_BYTES
    bucket, native = settings.bucket_bytes if said else None, settings.strategy == NATIVE
    return Sharding(zero, reduce, bucket, native, settings.overlap, lower)


def check_zero(
    asked: Sharding, other: str, world_size: int, split: Split | None, settings: Aggregation
) -> None:
    """Raise `UserError` for settings of an arm that exclude ZeRO, or that need it if the stage is
    0.

    Args:
        other: key of the setting by which the arm does not train by dualml's own updates; empty if
            it does.
    """
    zero = f"zero = {asked.stage}"
    if not asked.stage and asked.lower:
        raise UserError(
            "zero_param_dtype = precision keeps float32 weights on the rank that updates them "
            "alone; set zero = 1, 2 or 3, or leave it out"
        )
    if not asked.stage:
        raise UserError(
            f"zero_reduce = {asked.reduce} says how sharded gradients come together; set zero = 1, "
            "2 or 3, or leave it out"
        )
    if other:
        raise UserError(f"{zero} is for training by dualml's own updates; leave out {other}")
    if world_size == 1:
        raise UserError(
            f"{zero} shards over the ranks what each of them would hold; world_size is 1: set "
            "2 or more"
        )
    if split is not None and asked.stage > 1:
        raise UserError(
            f"{zero} splits gradients into units of whole layers, which a split's ranks do not "
            "have; with split use zero = 1, which shards the state over replicas"
        )
    if split is not None and asked.lower:
        raise UserError(
            "zero_param_dtype holds a whole model in low precision, and with split no rank has "
            "one; leave out zero_param_dtype or split"
        )
    if split is not None:
        check_replicas(split)
    if settings.strategy not in STRATEGIES:
        raise UserError(
            f"{zero} adds up gradients by reduce-scatter, which strategy = {settings.strategy} is "
            f"not; use ring (messages of dualml's own), {NATIVE} (the framework's collectives), or "
            "leave it out"
        )
    if asked.overlap and asked.stage == 1:
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
    """Raise `UserError` for a split in which no ranks have the same parameters, or in which ranks
    update them on their own."""
    if split.engine != "messages" or split.arrival == "asynchronous":
        asynchronous = split.engine == "messages"
        what = "update_mode = asynchronous" if asynchronous else f"engine = {split.engine}"
        raise UserError(f"zero = 1 shards an update that replicas make together; leave out {what}")
    if split.data == 1 and split.trainers == 1:
        raise UserError(
            "zero = 1 shards the state over ranks that have the same part of the model; with "
            "this split no two do: set split.data = 2 or more"
        )
