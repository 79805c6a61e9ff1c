"""Kinds of splits, as a union: by messages between ranks, with updates that do not wait, by
procedure calls, and over the devices of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import model_validator

from dualml.common.errors import UserError
from dualml.common.strict_model import Restricted
from dualml.common.tagged_union import OTHER_KIND, make_choice, make_minimum, make_union_type
from dualml.experiment.split.base import Split

TRANSPORT = (
    "transport = host is of messages between ranks; {engine} has its own: leave out transport, or "
    "use engine = messages"
)
ARRIVAL = (
    "{engine} has no server that could update without waiting: leave out update_mode, or use "
    "engine = messages"
)
LAYERS_ALONE = (
    "engine = rpc splits by layer alone; received {value}: leave it out, or use engine = messages"
)
ONE_PROCESS = (
    "engine = devices has all stages in one process; leave out split.{key}, or use engine = "
    "messages"
)


class OwnMessagesSplit(
    Split,
    without={
        "devices": "split.devices names devices of one process; that needs engine = "
        '"devices"; received engine = "messages"',
    },
    only={"engine": make_choice(OTHER_KIND, "messages")},
):
    """Split whose ranks send messages of dualml's own."""


class MessagesSplit(
    OwnMessagesSplit,
    tag="messages",
    only={"arrival": make_choice(OTHER_KIND, "synchronous")},
):
    """Split whose ranks send messages, and make every update together."""


class AsynchronousSplit(
    OwnMessagesSplit,
    tag="asynchronous",
    only={
        "trainers": make_minimum(
            "update_mode = asynchronous needs trainers >= 2: one never overtakes", 2
        ),
    },
):
    """Split with a server that updates after every trainer's gradient."""

    arrival: Literal["asynchronous"]

    @model_validator(mode="after")
    def _trainers_have_parts(self) -> AsynchronousSplit:
        """Raise `UserError` unless every trainer has one micro-batch."""
        if self.micro_batches != self.trainers:
            raise UserError(
                f"update_mode = asynchronous updates after every trainer's part of a batch: "
                f"micro_batches must be {self.trainers}; received {self.micro_batches}"
            )
        return self


class RpcSplit(
    Split,
    tag="rpc",
    without={
        **dict.fromkeys(("tensor", "data"), LAYERS_ALONE),
        "trainers": 'engine = rpc has one driver; use engine = "messages" for trainers = {value}',
        "grid": "engine = rpc takes several micro-batches in the schedule gpipe; leave out grid, "
        'or use engine = "messages"',
        "devices": "split.devices names devices of one process; that needs engine = "
        '"devices"; received engine = "rpc"',
        "transport": TRANSPORT.format(engine="engine = rpc"),
        "arrival": ARRIVAL.format(engine="engine = rpc"),
    },
):
    """Split whose driver calls the stages of other ranks by the framework's procedure calls."""

    engine: Literal["rpc"]

    @model_validator(mode="after")
    def _schedule_fits(self) -> RpcSplit:
        """Raise `UserError` for several micro-batches in another schedule that is written."""
        chosen = "schedule" in self.model_fields_set and self.schedule != "gpipe"
        if chosen and self.micro_batches > 1:
            raise UserError(
                "engine = rpc takes several micro-batches in the schedule gpipe; received schedule "
                f'= {self.schedule}, micro_batches = {self.micro_batches}: use engine = "messages" '
                "for others"
            )
        return self

    @property
    def planned_stages(self) -> int:
        """Number of stages to plan, two by default."""
        return self.stages or (0 if self.cut or self.place else 2)

    @property
    def planned_schedule(self) -> str:
        """Name of the schedule to plan; of one micro-batch all are the same."""
        return "gpipe"


class DevicesSplit(
    Split,
    tag="devices",
    without={
        **{
            key: ONE_PROCESS.replace("{key}", key)
            for key in ("grid", "tensor", "sequence", "context", "trainers")
        },
        "transport": TRANSPORT.format(engine="engine = devices"),
        "arrival": ARRIVAL.format(engine="engine = devices"),
    },
    only={
        "schedule": Restricted(
            "engine = devices takes schedule = naive or gpipe; received {value}",
            lambda schedule: schedule in ("naive", "gpipe"),
            {"enum": ["naive", "gpipe"]},
            covers_default=False,
        ),
        "data": Restricted(
            "engine = devices with data >= 2 adds up gradients in the backward pass of the "
            "last micro-batch; use schedule = naive",
            lambda data, schedule, pieces: data == 1 or schedule != "gpipe" or pieces == 1,
            earlier=("schedule", "micro_batches"),
        ),
        "devices": Restricted(
            'engine = "devices" needs two or more in split.devices, as in devices = ["cpu:0", '
            '"cpu:1"]; received {value}',
            lambda devices: len(devices) >= 2,
            {"minItems": 2},
        ),
    },
):
    """Split over the devices of each process, which has all stages."""

    engine: Literal["devices"]

    @property
    def host_staged(self) -> bool:
        """Whether messages between ranks go through host memory: always, because a rank has several
        accelerators and so is in no group with one accelerator per rank. Stages of one process pass
        values directly from device to device."""
        return True

    @property
    def planned_stages(self) -> int:
        """Number of stages to plan, one per device by default."""
        return self.stages or (0 if self.cut or self.place else len(self.devices))

    @property
    def planned_schedule(self) -> str:
        """Name of the schedule to plan: the one that is written, or ``naive``."""
        return self.schedule if "schedule" in self.model_fields_set else "naive"


if TYPE_CHECKING:
    AnySplit: TypeAlias = Split
else:
    AnySplit = make_union_type(MessagesSplit, AsynchronousSplit, RpcSplit, DevicesSplit)
