"""The settings of splits of all kinds, and the split plan made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from dualml.algorithms.model.spec import ModelSpec
from dualml.backend.devices import canonical_names
from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonObject
from dualml.common.tagged_union import TaggedUnion, read_setting
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.schedules import SCHEDULES

#: Maximum of a number in a split: a schedule has a cell for each pass of each micro-batch through
#: each stage.
MAX_SPLIT_NUMBER = 4096
Count = Annotated[int, Field(ge=1, le=MAX_SPLIT_NUMBER)]
TIMED = 32  # samples with which the layers are timed


def _known_schedule(value: str) -> str:
    """Return the name of a pipeline schedule; raise `UserError` for an unknown one."""
    if value not in SCHEDULES:
        raise UserError(f"unknown schedule {value!r}{did_you_mean(value, SCHEDULES)}")
    return value


class Split(TaggedUnion):
    """Settings of a split model on ``data`` × pipeline × ``tensor`` ranks, of one of the kinds in
    `dualml.experiment.split.kinds`.

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

    model_config = ConfigDict(defer_build=True)  # arms build what they need

    stages: Annotated[int, Field(ge=0, le=MAX_SPLIT_NUMBER)] = 0
    cut: list[str] = []
    balance: Literal["parameters", "activations", "time"] = "parameters"
    place: list[Annotated[int, Field(ge=0, le=MAX_SPLIT_NUMBER)]] = []
    schedule: Annotated[str, AfterValidator(_known_schedule)] = "1f1b"
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
    devices: Annotated[list[str], AfterValidator(canonical_names)] = []
    transport: Literal["device", "host"] = "device"

    @classmethod
    def infer_tag(cls, settings: Any) -> str:
        """Return the tag of the kind of split that ``settings`` (a mapping or an object) describe:
        ``rpc`` or ``devices`` by ``engine``, else ``asynchronous`` by ``arrival``, else
        ``messages``."""
        engine, arrival = read_setting(settings, "engine"), read_setting(settings, "arrival")
        if engine in ("rpc", "devices"):
            return str(engine)
        return "asynchronous" if arrival == "asynchronous" else "messages"

    @property
    def host_staged(self) -> bool:
        """Whether messages between ranks go through host memory."""
        return self.transport == "host"

    @property
    def planned_stages(self) -> int:
        """Number of stages to plan; 0: as many as ``cut``, ``place`` or the ranks imply."""
        return self.stages

    @property
    def planned_schedule(self) -> str:
        """Name of the schedule to plan, unless there is a ``grid``."""
        return self.schedule

    def plan(
        self, spec: ModelSpec, world_size: int, times: Mapping[str, float] | None = None
    ) -> SplitPlan:
        """Make the split plan, with layer → seconds ``times`` for a cut by time; raise `UserError`
        for a split that this model, or this number of ranks, cannot have."""
        return split_plan(
            spec,
            world_size,
            data=self.data,
            tensor=self.tensor,
            stages=self.planned_stages,
            cut=self.cut,
            balance=self.balance,
            times=times,
            place=self.place,
            schedule=self.planned_schedule,
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
        return {k: v for k, v in table.items() if v != Split.model_fields[k].default}


def reference_times(spec: ModelSpec) -> dict[str, float]:
    """Return layer → seconds of a forward and a backward pass, measured with the reference on this
    machine with `TIMED` samples."""
    from dualml.backend import backends
    from dualml.parallel.split.timing import layer_times

    return layer_times(backends()["numpy"].create(), spec, TIMED)
