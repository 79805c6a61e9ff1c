"""Kinds of arms whose ranks or devices have parts of the model."""

from typing import Self

from pydantic import model_validator

from dualml.common.errors import UserError
from dualml.common.strict_model import Restricted
from dualml.common.tagged_union import make_choice, make_minimum
from dualml.experiment.arm import reasons as why
from dualml.experiment.arm.training import OwnUpdatesArm, is_constant
from dualml.experiment.split import (
    AnySplit,
    AsynchronousSplit,
    DevicesSplit,
    MessagesSplit,
    RpcSplit,
)
from dualml.experiment.zero_checks import check_replicas


class SplitModelArm(
    OwnUpdatesArm,
    without={
        **dict.fromkeys(("aggregation", "partition"), why.COMBINES),
        "dealt_to": "partition_ranks = {value} needs a partition",
        "zero_lower": "zero_param_dtype holds a whole model in low precision, and with split no "
        "rank has one; leave out zero_param_dtype or split",
        "offload": why.OFFLOAD + "split",
    },
    only={
        "world_size": make_minimum(
            "split needs world_size >= 2: one rank has the whole model; several devices of one "
            'process are engine = "devices"',
            2,
        ),
        "batch_size": make_minimum(
            "split needs a batch_size: the batch goes through in micro-batches", 1
        ),
        "zero": make_choice(
            "zero = {value} splits gradients into units of whole layers, which a split's ranks do "
            "not have; with split use zero = 1, which shards the state over replicas",
            *(0, 1),
        ),
    },
):
    """The model is split over ranks or devices."""

    split: AnySplit

    @model_validator(mode="after")
    def _split_fits(self) -> Self:
        """Raise `UserError` for settings that this split excludes."""
        if self.zero:
            check_replicas(self.split)
        elif self.zero_reduce != "reduce_scatter":
            raise UserError(why.UNSHARDED["zero_reduce"].format(value=self.zero_reduce))
        if self.split.context > 1 and self.precision != "fp32":
            raise UserError(
                f"split.context = {self.split.context} attends in float32; leave out "
                f"precision = {self.precision}, or use tensor with sequence = true"
            )
        if self.split.context > 1 and self.recompute == "selective":
            raise UserError(
                f"recompute = selective computes attention again, and split.context = "
                f"{self.split.context} keeps no scores in the first place; use full, "
                "or leave it out"
            )
        return self


class MessagesSplitArm(SplitModelArm, tag="split"):
    """The model is split over ranks, which send messages of dualml's own."""

    split: MessagesSplit


class AsynchronousSplitArm(
    SplitModelArm,
    tag="split_asynchronous",
    without={
        "loss_scale": why.TRAINER_LOSS_SCALE,
        "zero": why.NO_REPLICAS + "update_mode = asynchronous",
    },
    only={
        "schedule": Restricted(
            "update_mode = asynchronous makes an update of every trainer's gradient; a schedule "
            "by batches has no meaning there",
            is_constant,
        ),
        "precision": make_choice(why.TRAINER_LOSS_SCALE, "fp32", "bf16"),
    },
):
    """A server updates its stages of a split model with every trainer's gradient."""

    split: AsynchronousSplit


class RpcSplitArm(
    SplitModelArm,
    tag="split_rpc",
    without={
        "slow": "the framework sends the messages of engine = rpc itself; leave out straggler, or "
        "use engine = messages",
        "recompute": "recompute and engine = rpc: there the framework keeps what it needs; use "
        "engine = messages, or leave out recompute",
        "zero": why.NO_REPLICAS + "engine = rpc",
    },
):
    """The model is split over ranks that call each other by the framework's procedure calls."""

    split: RpcSplit


class DevicesSplitArm(
    SplitModelArm,
    tag="split_devices",
    without={"zero": why.NO_REPLICAS + "engine = devices"},
    only={"world_size": make_minimum("", 1)},
):
    """The model is split over the devices of one process."""

    split: DevicesSplit
