"""Kinds of arms, as a union whose tag is inferred from the settings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from pydantic import model_validator

from dualml.common.errors import UserError
from dualml.common.strict_model import Restricted
from dualml.common.tagged_union import make_choice, make_minimum, make_union_type
from dualml.experiment.arm import reasons as why
from dualml.experiment.arm.base import Arm
from dualml.experiment.arm.settings import Method
from dualml.experiment.arm.split_kinds import (
    AsynchronousSplitArm,
    DevicesSplitArm,
    MessagesSplitArm,
    RpcSplitArm,
)
from dualml.experiment.arm.training import OwnUpdatesArm, TrainingArm, is_constant
from dualml.experiment.methods.config import check_config
from dualml.experiment.methods.registry import check_ranks
from dualml.experiment.offload_checks import check_offload
from dualml.experiment.zero_checks import check_sharded_aggregation
from dualml.parallel.aggregation import ASYNCHRONOUS, REPLICAS
from dualml.parallel.aggregation.settings import AsynchronousAggregation, AveragingAggregation


class CollectivesArm(
    Arm,
    tag="collectives",
    without={
        "partition": "partition is for training; leave it out of kind = collectives",
        "split": why.COMBINES,
        "method": why.ENGINE,
        "method_config": why.CONFIG,
        "precision": "precision = {value} is for training; leave it out of kind = collectives",
        "recompute": "recompute is for training; leave it out of kind = collectives",
        "zero": why.ZERO + "kind",
        **why.UNSHARDED,
        "offload": why.OFFLOAD + "kind",
    },
    only=dict.fromkeys(
        ("sizes", "strategies"),
        Restricted("kind = collectives needs sizes (bytes) and strategies", bool, {"minItems": 1}),
    ),
):
    """Times ``strategies`` and trains nothing."""

    kind: Literal["collectives"]


class MethodArm(
    TrainingArm,
    tag="method",
    without={
        **dict.fromkeys(("aggregation", "split"), why.ENGINE),
        "slow": "a method sends its messages itself; leave out straggler",
        "precision": "a method has a precision of its own; leave out precision",
        "zero": why.ZERO + "method",
        **why.UNSHARDED,
        "offload": why.OFFLOAD + "method",
        "recompute": "method = {method} keeps what it keeps; leave out recompute, or use method = "
        "recompute",
    },
    only={
        "schedule": Restricted(
            "a method takes a constant step size; leave out schedule", is_constant
        ),
    },
):
    """An engine's own loop makes the updates."""

    method: Method

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """Raise `UserError` for ranks, batches or a configuration that the engine does not take."""
        if self.method_config:
            check_config(
                self.method_config, self.method, self.batch_size, self.world_size, self.optimizer
            )
        check_ranks(self.method, self.world_size, self.backends)
        if not 0 < self.batch_size <= self.chunk:
            raise UserError(
                "a method takes a batch at once, of 1 to accumulation_batch samples; received "
                f"batch_size = {self.batch_size}, accumulation_batch = {self.chunk}"
            )
        return self


class WholeArm(OwnUpdatesArm, without={"split": why.COMBINES}):
    """Arm whose ranks train a whole model by dualml's own updates."""

    @model_validator(mode="after")
    def _offload_fits(self) -> Self:
        """Raise `UserError` for settings that exclude offloading."""
        if self.offload is not None:
            check_offload(
                self.offload,
                zero=self.zero,
                lower=self.zero_lower,
                world_size=self.world_size,
                settings=self.aggregation,
                rule=self.rule,
            )
        return self


class ShardedArm(
    WholeArm,
    tag="sharded",
    only={
        "world_size": make_minimum(
            "zero shards over the ranks what each of them would hold; world_size is 1: set 2 or "
            "more",
            2,
        ),
        "zero": make_choice("leave out zero = 0", 1, 2, 3),
    },
):
    """Ranks shard state, gradients and weights (ZeRO)."""

    @model_validator(mode="after")
    def _aggregation_fits(self) -> Self:
        """Raise `UserError` for an aggregation by which sharded gradients cannot come together."""
        check_sharded_aggregation(self.zero, self.aggregation)
        return self


class UnshardedArm(WholeArm, without={"zero": why.ZERO, **why.UNSHARDED}):
    """Arm whose ranks hold whole state and gradients."""


class AsynchronousArm(
    UnshardedArm,
    tag="asynchronous",
    without={
        "loss_scale": why.RANK_LOSS_SCALE,
        "offload": f"offload and strategy = {ASYNCHRONOUS}: offload is for one rank, or for units "
        "sharded over ranks by zero; leave out aggregation.strategy",
    },
    only={
        "schedule": Restricted(
            f"{ASYNCHRONOUS} makes an update of every rank's gradient; a schedule by global "
            "batches has no meaning there",
            is_constant,
        ),
        "precision": make_choice(why.RANK_LOSS_SCALE, "fp32", "bf16"),
    },
):
    """A parameter server updates with every rank's gradient."""

    aggregation: AsynchronousAggregation


class AveragingArm(
    UnshardedArm,
    tag="averaging",
    without={"loss_scale": why.RANK_LOSS_SCALE},
    only={"precision": make_choice(why.RANK_LOSS_SCALE, "fp32", "bf16")},
):
    """Ranks make updates of their own and average parameters (local SGD)."""

    aggregation: AveragingAggregation


class DataParallelArm(
    UnshardedArm,
    tag="data_parallel",
    without={
        "offload": "offload is for units sharded over ranks: with {world_size} ranks set zero = 3 "
        "for weights, and for state set zero = 1, 2 or 3; received zero = 0",
    },
    only={
        "aggregation": Restricted(
            f"{REPLICAS} is one process with several devices; world_size is {{world_size}}",
            lambda sharing: sharing.strategy != REPLICAS,
        )
    },
):
    """Ranks combine their gradients before every update."""


class SingleArm(UnshardedArm, tag="single"):
    """One process trains."""


#: Tag → kind, in the order in which `infer_kind` tries them.
KINDS: Mapping[str, type[Arm]] = {
    kind.tag: kind
    for kind in (
        *(
            CollectivesArm,
            MethodArm,
            RpcSplitArm,
            DevicesSplitArm,
            AsynchronousSplitArm,
            MessagesSplitArm,
        ),
        *(ShardedArm, AsynchronousArm, AveragingArm, DataParallelArm, SingleArm),
    )
}

if TYPE_CHECKING:
    AnyArm: TypeAlias = Arm
else:
    AnyArm = make_union_type(*KINDS.values())


def make_arm(settings: Mapping[str, Any] = {}, /, **more: Any) -> Arm:
    """Return an arm of the kind that its settings describe: those of ``settings``, replaced and
    completed by the keywords ``more``.

    Raises:
        ValidationError: the settings are not those of an arm, or contradict each other.
    """
    return Arm.model_validate({**settings, **more})
