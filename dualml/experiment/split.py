"""The ``split`` table of an arm, and the split plan made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dualml.algorithms.model.spec import ModelSpec
from dualml.backend.devices import canonical_names
from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonObject
from dualml.common.strict_model import StrictModel
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.schedules import SCHEDULES

#: Maximum of a number in a split: a schedule has a cell for each pass of each micro-batch through
#: each stage.
MAX_SPLIT_NUMBER = 4096
Count = Annotated[int, Field(ge=1, le=MAX_SPLIT_NUMBER)]
TIMED = 32  # samples with which the layers are timed


class Split(StrictModel):
    """Settings of a split model on ``data`` × pipeline × ``tensor`` ranks.

    The model has ``stages`` consecutive parts (0: one per pipeline rank), cut at ``cut`` or so that
    ``balance`` is even: numbers of ``parameters``, elements of ``activations``, or ``time``
    (measured with the reference on this machine when the plan is made). ``place`` assigns each
    stage a pipeline rank, round robin by default. The batch is processed as ``micro_batches``
    pieces in the order of ``schedule``, or of ``grid``: rank × tick, ``2F0`` for stage 2, forward,
    micro-batch 0.

    ``layers`` says how ``tensor`` ranks shard each layer: ``column``, ``row``, ``whole``; by
    default every pair of layers that can be sharded is. ``sequence`` shards the positions of a text
    outside of the sharded layers; with ``regather`` the inputs of sharded layers are all-gathered
    again in the backward pass, not kept. ``context`` ranks shard only positions, and compute ring
    attention.

    ``trainers`` ranks replicate the stages placed on pipeline rank 1, and rank 0 is their server;
    with ``arrival = "asynchronous"`` it updates after every trainer's gradient, in an order drawn
    from the seed.

    ``engine = "rpc"``: one rank, the driver, has the data and the loss and calls the stages by the
    framework's remote procedure calls. The driver is rank 0. With one more rank than stages it
    holds no stage (a master and its workers); with equally many it holds stage 0. If ``place``
    assigns rank 0 a stage and names more stages than there are ranks (``[0, 1, 0]``), rank 0 is a
    parameter server and the trainer, rank 1, is the driver. ``schedule`` is ``gpipe``: the
    micro-batches go forward in a pipeline, then backward together.

    ``engine = "devices"``: one process has all stages, each on one of its ``devices`` (``cpu:0``
    and ``cpu:1``, which are logical, or ``cuda:0``, …); ``place`` assigns each stage the index of
    its device in that list. ``data`` processes may each have a complete model of this kind.

    ``transport = "host"``: stages on accelerators send their messages through host memory and the
    hosts' network, so that ranks may share an accelerator.
    """

    stages: Annotated[int, Field(ge=0, le=MAX_SPLIT_NUMBER)] = 0
    cut: list[str] = []
    balance: Literal["parameters", "activations", "time"] = "parameters"
    place: list[Annotated[int, Field(ge=0, le=MAX_SPLIT_NUMBER)]] = []
    schedule: str = "1f1b"
    grid: list[list[str]] = []
    micro_batches: Count = 1
    tensor: Count = 1
    layers: dict[str, str] = {}
    sequence: bool = False
    regather: bool = False
    context: Count = 1
    data: Count = 1
    trainers: Count = 1
    arrival: Literal["synchronous", "asynchronous"] = "synchronous"
    engine: Literal["messages", "rpc", "devices"] = "messages"
    devices: list[str] = []
    transport: Literal["device", "host"] = "device"

    @field_validator("schedule")
    @classmethod
    def _schedule_is_known(cls, value: str) -> str:
        """Return the name of a pipeline schedule; raise `UserError` for an unknown one."""
        if value not in SCHEDULES:
            raise UserError(f"unknown schedule {value!r}{did_you_mean(value, SCHEDULES)}")
        return value

    @field_validator("devices")
    @classmethod
    def _devices_are_names(cls, value: list[str]) -> list[str]:
        """Return the devices by their canonical names, such as ``cpu:0``."""
        return canonical_names(value)

    @model_validator(mode="after")
    def _transport_fits(self) -> Split:
        """Raise `UserError` for transport ``host`` with an engine other than ``messages``."""
        if self.transport == "host" and self.engine != "messages":
            raise UserError(
                f"split.transport = host is of messages between ranks; engine = {self.engine} has "
                "its own: leave out transport, or use engine = messages"
            )
        return self

    @property
    def host_staged(self) -> bool:
        """Whether messages between ranks go through host memory: on request, or with engine
        ``devices``, whose ranks have several accelerators each and so are in no group with one
        accelerator per rank. Stages of one process pass values directly from device to device."""
        return self.transport == "host" or self.engine == "devices"

    @model_validator(mode="after")
    def _devices_fit(self) -> Split:
        """Check the settings of engine ``devices``, and that no other engine has devices; raise
        `UserError` for the first that does not fit."""
        if self.engine != "devices":
            if self.devices:
                raise UserError(
                    "split.devices names devices of one process; that needs engine = "
                    f'"devices"; received engine = "{self.engine}"'
                )
            return self
        if len(self.devices) < 2:
            raise UserError(
                'engine = "devices" needs two or more in split.devices, as in devices = ["cpu:0", '
                f'"cpu:1"]; received {self.devices}'
            )
        alone = {"tensor": 1, "context": 1, "trainers": 1, "sequence": False, "grid": []}
        for key, value in alone.items():
            if getattr(self, key) != value:
                raise UserError(
                    f"engine = devices has all stages in one process; leave out split.{key}, or "
                    "use engine = messages"
                )
        if "schedule" in self.model_fields_set and self.schedule not in ("naive", "gpipe"):
            raise UserError(
                f"engine = devices takes schedule = naive or gpipe; received {self.schedule}"
            )
        if self.data > 1 and self.schedule == "gpipe" and self.micro_batches > 1:
            raise UserError(
                "engine = devices with data >= 2 adds up gradients in the backward pass of the "
                "last micro-batch; use schedule = naive"
            )
        return self

    @model_validator(mode="after")
    def _fits(self) -> Split:
        """Check the settings of asynchronous updates and of engine ``rpc``; raise `UserError` for
        the first that does not fit."""
        if self.arrival == "asynchronous" and self.trainers == 1:
            raise UserError("update_mode = asynchronous needs trainers >= 2: one never overtakes")
        if self.arrival == "asynchronous" and self.micro_batches != self.trainers:
            raise UserError(
                f"update_mode = asynchronous updates after every trainer's part of a batch: "
                f"micro_batches must be {self.trainers}; received {self.micro_batches}"
            )
        if self.engine == "rpc" and (self.tensor > 1 or self.data > 1):
            raise UserError("engine = rpc splits by layer alone; leave out tensor and data")
        if self.engine == "rpc" and self.trainers > 1:
            raise UserError(
                f'engine = rpc has one driver; use engine = "messages" for trainers = '
                f"{self.trainers}"
            )
        chosen = "schedule" in self.model_fields_set and self.schedule != "gpipe"
        if self.engine == "rpc" and (self.grid or (chosen and self.micro_batches > 1)):
            raise UserError(
                "engine = rpc takes several micro-batches in the schedule gpipe; "
                'use engine = "messages" for others'
            )
        return self

    def plan(
        self, spec: ModelSpec, world_size: int, times: Mapping[str, float] | None = None
    ) -> SplitPlan:
        """Make the split plan, with layer → seconds ``times`` for a cut by time; raise `UserError`
        for a split that this model, or this number of ranks, cannot have."""
        stages, schedule = self.stages, self.schedule
        if self.engine == "devices":
            stages = stages or (0 if self.cut or self.place else len(self.devices))
            schedule = schedule if "schedule" in self.model_fields_set else "naive"
        if self.engine == "rpc":
            schedule = "gpipe"  # of one micro-batch all are the same
            stages = stages or (0 if self.cut or self.place else 2)
        return split_plan(
            spec,
            world_size,
            data=self.data,
            tensor=self.tensor,
            stages=stages,
            cut=self.cut,
            balance=self.balance,
            times=times,
            place=self.place,
            schedule=schedule,
            grid=self.grid,
            micro_batches=self.micro_batches,
            layers=self.layers,
            trainers=self.trainers,
            engine=self.engine,
            sequence=self.sequence,
            regather=self.regather,
            context=self.context,
            devices=self.devices,
        )

    def describe(self) -> JsonObject:
        """Return the settings that differ from their defaults, as JSON values."""
        table = self.model_dump(mode="json")
        return {k: v for k, v in table.items() if v != type(self).model_fields[k].default}


def reference_times(spec: ModelSpec) -> dict[str, float]:
    """Return layer → seconds of a forward and a backward pass, measured with the reference on this
    machine with `TIMED` samples."""
    from dualml.backend import backends
    from dualml.parallel.split.timing import layer_times

    return layer_times(backends()["numpy"].create(), spec, TIMED)
