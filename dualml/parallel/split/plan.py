"""The split plan: which rank holds which layers and slices, and what it does in an update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dualml.algorithms.communicator.parts import part_lengths
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names
from dualml.algorithms.precision import low_precision_layers
from dualml.backend import Segment
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parallel.split import positions, stage_cuts
from dualml.parallel.split.mesh import Mesh
from dualml.parallel.split.order import validate
from dualml.parallel.split.schedule import Action, Grid, live
from dualml.parallel.split.schedules import build
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.styles import choose_styles
from dualml.parallel.split.tensor_parallel import Item, StageShard


@dataclass(frozen=True)
class StageView:
    """A stage as one rank holds it.

    Attributes:
        stage: number of the stage in the model.
        items: segments and communication operators of this rank, in order.
        segments: numbers of the segments, counted through all stages of the rank.
    """

    stage: int
    items: tuple[Item, ...]
    segments: tuple[int, ...]


@keep_former_members
@dataclass(frozen=True)
class SplitPlan:
    """A complete plan for splitting a model over ranks.

    Attributes:
        spec: the whole model.
        mesh: the ranks as data × pipeline × tensor.
        cut: layers at which stages 1, 2, … begin.
        place: stage → pipeline rank.
        styles: layer → ``column``, ``row`` or ``whole``.
        schedule: name of the schedule; ``grid`` for a user-defined one, whose cells are ``rows``.
        micro_batches: number of micro-batches of the batch of a replica.
        trainers: number of ranks that share the stages placed on pipeline rank 1; micro-batch i is
            processed by trainer i mod ``trainers``.
        rows: cells of a user-defined schedule, rank × tick; empty otherwise.
        engine: ``messages``: stages exchange messages; ``rpc``: one rank, the `driver`, calls all
            stages; ``devices``: each rank holds all stages, on devices of its process.
        shared: how ranks of a tensor-parallel group shard the positions of a text, a key of
            `positions.POSITION_SLICES`; empty: each rank has all positions. With ``context`` they
            share no layers.
        regather: whether an all-gathered segment input is saved as the local shard only, and
            gathered again for the backward pass.
        devices: stage → device of the first replica; empty unless the engine is ``devices``.
    """

    spec: ModelSpec
    mesh: Mesh
    cut: tuple[str, ...]
    place: tuple[int, ...]
    styles: Mapping[str, str]
    schedule: str
    micro_batches: int
    trainers: int = 1
    rows: tuple[tuple[str, ...], ...] = ()
    engine: str = "messages"
    shared: str = ""
    regather: bool = False
    devices: tuple[str, ...] = ()

    @property
    def stages(self) -> list[list[str]]:
        """Layer names of each stage, in the order of the model."""
        return stage_cuts.stage_layers(self.spec, self.cut)

    @property
    def world_size(self) -> int:
        """Total number of ranks."""
        return self.mesh.size

    @property
    def driver(self) -> int:
        """The rank that calls the stages and has the data and the loss when the engine is ``rpc``.

        It is rank 0, unless rank 0 holds a stage and there are more stages than ranks: then rank 0
        is a parameter server, and its trainer, rank 1, is the driver.
        """
        return int(0 in self.place and len(self.place) > self.world_size)

    @cached_property
    def grid(self) -> Grid:
        """The schedule: which pipeline rank runs which action in which tick."""
        if self.rows:
            return Grid.parse(self.rows, self.place, self.micro_batches)
        if self.engine == "rpc":
            return rpc_schedule(self.place, self.schedule, self.micro_batches)
        return build(self.schedule, self.place, self.micro_batches)

    def owner(self, data: int, stage: int, tensor: int, micro: int = 0) -> int:
        """Return the rank that processes micro-batch ``micro`` in a stage, for replica ``data`` and
        slice ``tensor``."""
        place = self.place[stage]
        if self.trainers > 1 and place == 1:
            place += micro % self.trainers
        return self.mesh.rank(data, place, tensor)

    def stages_on(self, rank: int) -> list[int]:
        """Return the numbers of the stages that a rank holds, ascending."""
        place = self.pipeline_row(rank)
        return [stage for stage, there in enumerate(self.place) if there == place]

    def reads(self, rank: int) -> tuple[bool, bool]:
        """Return whether a rank reads samples and whether it reads labels.

        The first stage needs the samples and the last stage the labels; with RPC the driver needs
        both.
        """
        if self.engine == "rpc":
            return rank == self.driver, rank == self.driver
        stages = self.stages_on(rank)
        return 0 in stages, len(self.stages) - 1 in stages

    @property
    def scorer(self) -> int:
        """The rank that evaluates predictions, because it has the labels: one of the last stage in
        replica 0, with RPC the driver."""
        return self.driver if self.engine == "rpc" else self.owner(0, len(self.stages) - 1, 0)

    def pipeline_row(self, rank: int) -> int:
        """Return the row of the grid that a rank executes; trainers share one row."""
        place = self.mesh.coordinates(rank)[1]
        return min(place, 1) if self.trainers > 1 else place

    def crosses(self, stage: int, other: int) -> bool:
        """Return whether ``stage`` and ``other``, stages of one process, lie on different devices;
        False for the engines without devices."""
        return bool(self.devices) and self.devices[stage] != self.devices[other]

    def program(self, rank: int) -> list[Action]:
        """Return the actions of a rank in an update, in order; of trainers that share stages, those
        of the rank's own micro-batches only."""
        row = self.pipeline_row(rank)
        actions = self.grid.program(row)
        if self.trainers > 1 and row == 1:
            trainer = self.mesh.coordinates(rank)[1] - 1
            actions = [a for a in actions if a.micro % self.trainers == trainer]
        return actions

    def live(self, rank: int) -> int:
        """Return the largest number of activations that a rank holds at once; a trainer has only
        some of the micro-batches."""
        return live(self.program(rank))

    def rank_stages(self, rank: int) -> tuple[list[StageView], dict[str, TensorShard]]:
        """Return the stages of a rank, in model order, and canonical name → this rank's shard for
        each of their parameters."""
        tensor, number = self.mesh.coordinates(rank)[2], 0
        views, pieces = list[StageView](), dict[str, TensorShard]()
        for stage in self.stages_on(rank):
            given = self.styles, tensor, self.mesh.tensor, self.shared
            shard = StageShard(self.spec, self.stages[stage], *given)
            count = sum(isinstance(item, Segment) for item in shard.items)
            segments = tuple(range(number, number + count))
            views.append(StageView(stage, tuple(shard.items), segments))
            pieces |= shard.pieces
            number += count
        return views, pieces

    def same_parameters(self) -> list[list[int]]:
        """Return all groups of two or more ranks that hold the same parameters and combine their
        gradients: replicas, or the trainers that share stages."""
        if self.trainers > 1:
            return [list(range(1, 1 + self.trainers))]
        return [group for group in self.mesh.data_groups() if len(group) > 1]

    @cached_property
    def tied_params(self) -> dict[str, list[int]]:
        """Canonical name → numbers of the stages, for each parameter that layers of several stages
        share; others are left out."""
        layers, stages = dict(self.spec.layers), dict[str, list[int]]()
        for stage, names in enumerate(self.stages):
            own = [
                full
                for name in names
                for full in canonical_parameter_names(name, layers[name]).values()
            ]
            for full in dict.fromkeys(own):
                stages.setdefault(full, []).append(stage)
        return {full: there for full, there in stages.items() if len(there) > 1}

    def tied_groups(self) -> list[list[int]]:
        """Return the groups of ranks, one per replica and tensor slice, that hold a tied parameter
        and all-reduce its gradients; empty if all layers that share parameters are on one pipeline
        rank."""
        places = {self.place[stage] for there in self.tied_params.values() for stage in there}
        mesh = self.mesh
        if len(places) < 2:
            return []
        return [
            [mesh.rank(data, place, tensor) for place in sorted(places)]
            for data in range(mesh.data)
            for tensor in range(mesh.tensor)
        ]

    def activation_numel(self, stage: int) -> int:
        """Return the number of elements per sample that a rank sends from a stage to the next
        one."""
        return math.prod(self.activation_shape(stage))

    def activation_shape(self, stage: int) -> tuple[int, ...]:
        """Return the shape, per sample, of the message from a rank of a stage to a rank of the next
        stage: the output of the stage, with this rank's positions only where ranks shard
        positions."""
        length, *rest = self.spec.shapes()[self.stages[stage][-1]]
        return (length // (self.mesh.tensor if self.shared else 1), *rest)

    def sends_low_precision(self, stage: int) -> bool:
        """Return whether the output of a stage is of the low-precision type in a model trained in
        mixed precision (`dualml.algorithms.precision`)."""
        return self.stages[stage][-1] in low_precision_layers(self.spec.layers)

    def micro_batch_sizes(self, batch: int) -> list[tuple[int, int, int, int]]:
        """Return (replica, samples of the replica, micro-batch, samples of the micro-batch) for
        every micro-batch of a batch of ``batch`` samples, also for those without samples."""
        return [
            (data, samples, micro, size)
            for data, samples in enumerate(part_lengths(batch, self.mesh.data))
            for micro, size in enumerate(part_lengths(samples, self.micro_batches))
        ]


def split_plan(
    spec: ModelSpec,
    world_size: int,
    *,
    data: int = 1,
    tensor: int = 1,
    stages: int = 0,
    cut: Sequence[str] = (),
    balance: str = "parameters",
    times: Mapping[str, float] | None = None,
    place: Sequence[int] = (),
    schedule: str = "1f1b",
    grid: Sequence[Sequence[str]] = (),
    micro_batches: int = 1,
    layers: Mapping[str, str] | None = None,
    trainers: int = 1,
    engine: str = "messages",
    sequence: bool = False,
    regather: bool = False,
    context: int = 1,
    devices: Sequence[str] = (),
) -> SplitPlan:
    """Make the plan for splitting a model over ``world_size`` ranks.

    Args:
        spec: the whole model.
        world_size: total number of ranks.
        data, tensor: number of replicas, and number of ranks that share every split layer.
        stages: number of stages; 0: one per pipeline rank (or as ``cut`` and ``place`` imply).
        cut: layers at which stages 1, 2, … begin; if empty, balanced by ``balance``.
        balance: ``parameters``, ``activations`` or ``time``.
        times: seconds of each layer, for ``balance = "time"``.
        place: stage → pipeline rank; by default round robin, for ``rpc`` one stage on each of the
            last ranks.
        schedule: a key of `dualml.parallel.split.schedules.SCHEDULES`.
        grid: a user-defined schedule, rank × tick, instead of ``schedule``.
        micro_batches: number of micro-batches of the batch of a replica.
        layers: layer → ``column``, ``row`` or ``whole``; by default layers are split in pairs.
        trainers: ranks that share the second stage, next to a parameter server.
        engine: ``messages``; ``rpc``: one rank calls the stages; or ``devices``: each rank has all
            stages.
        sequence: whether the ranks of ``tensor`` shard the positions where they share no layer.
        regather: whether they save only their own positions of the gathered inputs, and gather
            these a second time for the backward pass.
        context: ranks that shard positions and no layers; in the mesh they take the place of
            ``tensor``.
        devices: devices of one process, for the engine ``devices``; ``place`` indexes them.

    Raises:
        UserError: numbers that do not fit together, a cut at an illegal layer, a layer that cannot
            be split so, a parameter that stages cannot share, or an unknown, incomplete or
            deadlocking schedule.
    """
    positions.check_settings(tensor, sequence, regather, context, trainers, engine)
    named = ("context", context) if context > 1 else ("tensor", tensor)
    if world_size % (data * named[1]):
        raise UserError(
            f"a mesh of data {data} × {named[0]} {named[1]} does not divide {world_size} ranks: "
            f"world_size must be data × pipeline × {named[0]}"
        )
    pipeline = world_size // (data * tensor * context)
    rows = 2 if trainers > 1 else pipeline
    if trainers > 1 and (data * tensor != 1 or pipeline != 1 + trainers):
        raise UserError(
            f"trainers = {trainers} with one server are {1 + trainers} ranks, without data and "
            f"tensor; received world_size = {world_size}, data = {data}, tensor = {tensor}"
        )
    if engine == "devices" and pipeline > 1:
        raise UserError(
            f"engine = devices has all stages in each process: world_size must be data = {data}; "
            f"received {world_size}"
        )
    count = stages or len(cut) + 1 if cut else stages or len(place) or rows
    if cut and len(cut) != count - 1:
        raise UserError(f"stages = {count} needs {count - 1} cuts; received {list(cut)}")
    if cut:
        stage_cuts.check_cuts(spec, cut)
    elif count > 1:  # one stage needs no cut, and a restored plan has no times
        cut = stage_cuts.balance_stages(spec, count, stage_cuts.layer_costs(spec, balance, times))
    on: tuple[str, ...] = ()
    if engine == "devices":
        on, place = place_stages(devices, place, count), (0,) * count
    if engine == "rpc" and not place:
        place = default_placement(count, world_size)
    owners = tuple(place) or tuple(stage % rows for stage in range(count))
    driver = {0} if engine == "rpc" else set()  # the driver may have no stage
    if len(owners) != count or {*owners, *driver} != set(range(rows)):
        raise UserError(
            f"place must give each of {count} stages one of {rows} pipeline ranks and every rank a "
            f"stage; received {list(owners)}"
        )
    if layers and tensor == 1:
        raise UserError("split.layers says how layers are split inside; that needs tensor >= 2")
    if trainers > 1 and micro_batches % trainers:
        raise UserError(
            f"micro_batches = {micro_batches} cannot be shared by {trainers} trainers; use a "
            f"multiple of {trainers}"
        )
    styles = choose_styles(spec, tensor, layers or {}, stage_cuts.stage_layers(spec, cut))
    shared = "context" if context > 1 else "sequence" if sequence else ""
    tensor *= context
    if shared:
        positions.check_model(spec, shared, tensor)
    given = tuple(tuple(row) for row in grid)
    plan = SplitPlan(
        spec,
        Mesh(data, pipeline, tensor),
        tuple(cut),
        owners,
        styles,
        "grid" if given else schedule,
        micro_batches,
        trainers,
        given,
        engine,
        shared,
        regather,
        on,
    )
    validate(plan.grid)
    check_tied(plan)
    for rank in range(world_size):
        plan.rank_stages(rank)  # raises if a layer cannot be sliced
    return plan


def check_tied(plan: SplitPlan) -> None:
    """Raise `UserError` if stages share a parameter and the engine does not sum the gradients that
    each of them computes for it, or, with the engine ``devices``, if those stages lie on different
    devices."""
    together = plan.trainers == 1 or all(
        {plan.place[stage] for stage in there} == {0} for there in plan.tied_params.values()
    )  # summed by the ranks of a pipeline, or held once by the server
    if not plan.tied_params or (plan.engine == "messages" and together):
        return
    if plan.engine == "devices":
        for name, stages in plan.tied_params.items():
            there = [plan.devices[stage] for stage in stages]
            if len(set(there)) > 1:
                raise UserError(
                    f"{name} is of layers in stages on {' and '.join(there)}, and a parameter lies "
                    "on one device: place those stages on the same device, or untie the layers "
                    "(sizes.tied = false)"
                )
        return
    (name, stages), *_ = plan.tied_params.items()
    given = "engine = rpc" if plan.engine == "rpc" else f"trainers = {plan.trainers}"
    raise UserError(
        f"{name} is of layers in stages {' and '.join(map(str, stages))}, whose gradients only "
        f"engine = messages adds up, of trainers' stages none; received {given}: leave it out, or "
        "untie the layers (tied = false)"
    )


def default_placement(stages: int, world_size: int) -> tuple[int, ...]:
    """Return the default placement with RPC, stage → rank: one stage per rank, in order; with one
    rank more than stages, rank 0 has none and is the master.

    Raises:
        UserError: ``world_size`` is neither ``stages`` nor ``stages`` + 1.
    """
    if world_size not in (stages, stages + 1):
        raise UserError(
            f"{stages} stages by rpc take {stages} ranks, or {stages + 1} with a master that holds "
            f"none; received world_size = {world_size}; change it or stages, or say place"
        )
    return tuple(range(world_size - stages, world_size))


def rpc_schedule(place: tuple[int, ...], schedule: str, micro_batches: int) -> Grid:
    """Return the grid of the schedule named ``schedule`` for stages that a driver calls, with
    ``place`` as stage → rank; a rank 0 without a stage has an idle row."""
    if 0 in place:
        return build(schedule, place, micro_batches)
    workers = build(schedule, [rank - 1 for rank in place], micro_batches)
    idle = (None,) * workers.ticks
    return Grid((idle, *workers.rows), place, micro_batches)


def place_stages(devices: Sequence[str], place: Sequence[int], stages: int) -> tuple[str, ...]:
    """Return the device of every stage: round robin over ``devices`` if ``place`` is empty, else by
    ``place``, which has for each stage a position in ``devices``, from 0.

    Raises:
        UserError: a place for another number of stages, beyond the devices, or a device without a
            stage.
    """
    numbers = tuple(place) or tuple(stage % len(devices) for stage in range(stages))
    if len(numbers) != stages or set(numbers) != set(range(len(devices))):
        raise UserError(
            f"place must give each of {stages} stages one of {len(devices)} devices, numbered from "
            f"0 as in split.devices, and every device a stage; received {list(numbers)}"
        )
    return tuple(devices[number] for number in numbers)
