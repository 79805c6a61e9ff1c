"""What arms with ``zero`` may ask for, see `dualml.zero`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualml.aggregation.settings import Aggregation
from dualml.errors import UserError
from dualml.zero.settings import NATIVE, STRATEGIES, Sharding

if TYPE_CHECKING:
    from dualml.experiment.arm import Arm
    from dualml.experiment.split import Split


def check_zero(arm: Arm) -> None:
    """Raises `UserError` for settings that do not go together."""
    if not arm.zero:
        raise UserError(
            f"zero_reduce = {arm.zero_reduce} says how sharded gradients come together; set "
            "zero = 1, 2 or 3, or leave it out"
        )
    asked, settings = f"zero = {arm.zero}", arm.aggregation
    if arm.kind != "train" or arm.method:
        other = "method" if arm.method else "kind"
        raise UserError(f"{asked} is for training by dualml's own updates; leave out {other}")
    if arm.world_size == 1:
        raise UserError(
            f"{asked} shares out over the ranks what each of them would hold; world_size is 1: set "
            "2 or more"
        )
    if arm.split is not None and arm.zero > 1:
        raise UserError(
            f"{asked} takes gradients apart in units of whole layers, which a split's ranks do not "
            "have; with split use zero = 1, which shares out the state among replicas"
        )
    if arm.split is not None:
        check_replicas(arm.split)
    if settings.strategy not in STRATEGIES:
        raise UserError(
            f"{asked} adds up gradients by reduce-scatter, which strategy = {settings.strategy} is "
            f"not; use ring (messages of dualml's own), {NATIVE} (the framework's collectives), or "
            "leave it out"
        )
    for key in ("of", "compress", "overlap"):
        value = getattr(settings, key)
        if value != Aggregation.model_fields[key].default:
            raise UserError(
                f"{asked} adds up gradients as they are, unit by unit; leave out "
                f"aggregation.{key} = {str(value).lower()}"
            )


def sharding_of(arm: Arm) -> Sharding:
    """What is shared out, and how."""
    settings = arm.aggregation
    native = settings.strategy == NATIVE
    return Sharding(arm.zero, arm.zero_reduce, settings.bucket_bytes, native)


def check_replicas(split: Split) -> None:
    """Raises `UserError` for a split without ranks that have the same parameters, or whose ranks
    update them on their own."""
    if split.engine == "rpc" or split.arrival == "asynchronous":
        what = "engine = rpc" if split.engine == "rpc" else "arrival = asynchronous"
        raise UserError(
            f"zero = 1 shares out an update that replicas make together; leave out {what}"
        )
    if split.data == 1 and split.trainers == 1:
        raise UserError(
            "zero = 1 shares out the state among ranks that have the same part of the model; with "
            "this split no two do: set split.data = 2 or more"
        )
