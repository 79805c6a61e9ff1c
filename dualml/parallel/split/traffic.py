"""Traffic of a split model in one update, computed from the plan: messages and bytes per link."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dualml.backend import Segment
from dualml.backend.devices import shift_devices
from dualml.common.json_types import JsonObject
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.ring import kv_numel
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.tensor_parallel import ParallelOp, RingAttentionOp

#: Bytes of an element on the wire: float32, and low precision.
FLOAT, LOWER = 4, 2


@dataclass(frozen=True)
class LinkVolume:
    """Messages of one kind, ``what`` (``activations``, ``gradients`` or ``samples``), that rank
    ``source`` sends to rank ``target`` in an update: their number and their bytes together."""

    source: int
    target: int
    messages: int
    nbytes: int
    what: str


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind in a group of ranks in an update: ``calls`` calls with ``nbytes``
    bytes per rank in total; an all-gather counts the slice that each rank contributes. ``kind``
    says what is done and when, such as ``all_reduce forward``."""

    ranks: tuple[int, ...]
    kind: str
    calls: int
    nbytes: int


def links(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[LinkVolume]:
    """Return the messages between stages in an update of ``batch`` samples, summed by pair of ranks
    and kind and sorted by them; values that stay on a rank are none.

    Args:
        lower: whether the model is trained in mixed precision.
    """
    messages, sizes = Counter[tuple[int, int, str]](), Counter[tuple[int, int, str]]()
    crossing = _rpc_messages if plan.engine == "rpc" else _stage_messages
    for source, target, what, elements, stage in crossing(plan, batch):
        if elements and source != target:
            messages[source, target, what] += 1
            short = lower and stage >= 0 and plan.sends_low_precision(stage)
            sizes[source, target, what] += elements * (LOWER if short else FLOAT)
    return [LinkVolume(*key[:2], messages[key], sizes[key], key[2]) for key in sorted(messages)]


Message = tuple[int, int, str, int, int]


def _stage_messages(plan: SplitPlan, batch: int) -> Iterator[Message]:
    """Yield the messages of neighbouring stages: (source, target, what, elements, stage whose
    output it is)."""
    for data, _, micro, size in plan.micro_batch_sizes(batch):
        for stage in range(len(plan.stages) - 1):
            elements = size * plan.activation_numel(stage)
            for tensor in range(plan.mesh.tensor):
                below, above = (plan.owner(data, s, tensor, micro) for s in (stage, stage + 1))
                yield below, above, "activations", elements, stage
                yield above, below, "gradients", elements, stage


def _rpc_messages(plan: SplitPlan, batch: int) -> Iterator[Message]:
    """Yield the messages of remote procedure calls: (source, target, what, elements, stage whose
    output it is); samples have stage -1.

    The driver has the data and the loss. It calls a stage with an activation and passes the result
    on to the next stage; gradients return the same way. So all of them cross the driver's links.
    """
    layers, driver = dict(plan.spec.layers), plan.driver
    learns = [any(layers[n].parameters() for n in names) for names in plan.stages]
    for _, _, _, size in plan.micro_batch_sizes(batch):
        for stage, there in enumerate(plan.place):
            into = plan.activation_numel(stage - 1) if stage else math.prod(plan.spec.input_shape)
            into, out, below = size * into, size * plan.activation_numel(stage), any(learns[:stage])
            yield driver, there, "activations" if stage else "samples", into, stage - 1
            yield there, driver, "activations", out, stage
            if below or learns[stage]:
                yield driver, there, "gradients", out, stage
            if below:
                yield there, driver, "gradients", into, stage - 1


def transfers(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[JsonObject]:
    """Return the values that move between the devices of each process in an update of ``batch``
    samples: ``rank``, ``source``, ``target``, ``what`` (``activations`` or ``gradients``), and
    their number ``messages`` and bytes ``nbytes``. Empty for a plan without devices.

    Args:
        lower: whether the model is trained in mixed precision.
    """
    messages, sizes = Counter[tuple[int, str, str, str]](), Counter[tuple[int, str, str, str]]()
    for rank, _, what, elements, stage in _stage_messages(plan, batch) if plan.devices else ():
        if elements and plan.crosses(stage, stage + 1):
            devices = shift_devices(plan.devices, plan.mesh.coordinates(rank)[0])
            ends = devices[stage], devices[stage + 1]
            source, target = ends if what == "activations" else ends[::-1]
            low = lower and plan.sends_low_precision(stage)
            messages[rank, source, target, what] += 1
            sizes[rank, source, target, what] += elements * (LOWER if low else FLOAT)
    names = ("rank", "source", "target", "what")
    return [
        {**dict(zip(names, key, strict=True)), "messages": messages[key], "nbytes": sizes[key]}
        for key in sorted(messages)
    ]


def collectives(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[Collective]:
    """Return the collectives in an update of ``batch`` samples, summed by group of ranks and kind,
    with bytes per rank; sums are float32 in any precision. ``lower`` says whether the model is
    trained in mixed precision."""
    calls, sizes = Counter[tuple[tuple[int, ...], str]](), Counter[tuple[tuple[int, ...], str]]()
    for group in plan.mesh.tensor_groups() if plan.mesh.tensor > 1 else ():
        data = plan.mesh.coordinates(group[0])[0]
        for view in plan.rank_stages(group[0])[0]:
            for item in view.items:
                for d, _, _, size in plan.micro_batch_sizes(batch):
                    if d != data or not size or isinstance(item, Segment):
                        continue
                    for kind, number, each in _op_collectives(item, plan, size, lower):
                        calls[tuple(group), kind] += number
                        sizes[tuple(group), kind] += each
    reductions: list[tuple[list[list[int]], Callable[[str, TensorShard], bool]]] = [
        (plan.same_parameters(), lambda name, piece: True),
        (plan.tied_groups(), lambda name, piece: name in plan.tied_params),
        (plan.mesh.tensor_groups() if plan.shared else [], lambda name, piece: piece.parts == 1),
    ]
    for groups, is_reduced in reductions:
        for group in groups:
            pieces = plan.rank_stages(group[0])[1].items()
            reduced = (math.prod(p.local_shape) for name, p in pieces if is_reduced(name, p))
            calls[tuple(group), "all_reduce gradients"] += 1
            sizes[tuple(group), "all_reduce gradients"] += FLOAT * sum(reduced)
    return [Collective(*key, calls[key], sizes[key]) for key in calls]


#: Kind of an operator → its collectives.
PAIRS = {
    "copy": ["all_reduce backward"],
    "sum": ["all_reduce forward"],
    "gather": ["all_gather forward"],
    "collect": ["all_gather forward", "reduce_scatter backward"],
    "scatter": ["reduce_scatter forward", "all_gather backward"],
    "take": [],
}


def _op_collectives(
    item: ParallelOp | RingAttentionOp, plan: SplitPlan, size: int, lower: bool
) -> Iterator[tuple[str, int, int]]:
    """Yield the collectives of one operator for ``size`` samples: kind and direction, calls, bytes
    per rank. An all-gather counts the slice that each rank contributes."""
    parts = plan.mesh.tensor
    if isinstance(item, RingAttentionOp):
        each = kv_numel(item.layer, parts) * size * FLOAT
        yield "ring forward", parts - 1, (parts - 1) * each
        yield "ring backward", 2 * (parts - 1), 2 * (parts - 1) * each
        return
    again = ["all_gather backward"] if plan.regather and item.kind == "collect" else []
    for kind in PAIRS[item.kind] + again:
        elements = size * math.prod(item.shape)
        if kind.startswith("all_gather"):
            yield kind, 1, elements // parts * (LOWER if lower and item.lower else FLOAT)
        else:
            yield kind, 1, elements * FLOAT


def total_sent_bytes(plan: SplitPlan, batch: int, *, lower: bool = False) -> int:
    """Return the bytes that all ranks together send in an update of ``batch`` samples; collectives
    are counted as ring algorithms.

    Args:
        lower: whether the model is trained in mixed precision.
    """
    total = sum(link.nbytes for link in links(plan, batch, lower=lower))
    for each in collectives(plan, batch, lower=lower):
        n = len(each.ranks)
        way = each.kind.partition(" ")[0]
        times = {"all_reduce": 2 * (n - 1), "reduce_scatter": n - 1, "all_gather": n * (n - 1)}
        total += each.nbytes * times.get(way, n)
    return total


def describe(plan: SplitPlan, batch: int, *, lower: bool = False) -> JsonObject:
    """Return a plan and its traffic in an update of ``batch`` samples as JSON-compatible values,
    for the command line and the report: among others ``ranks`` (what each holds), ``grid`` (rank ×
    tick), ``links`` and, for collectives, ``meetings``.

    Args:
        lower: whether the model is trained in mixed precision.
    """
    ranks = []
    for rank in range(plan.world_size):
        views, pieces = plan.rank_stages(rank)
        data, pipeline, tensor = plan.mesh.coordinates(rank)
        ranks.append(
            {
                "rank": rank,
                "data": data,
                "pipeline": pipeline,
                "tensor": tensor,
                "stages": [view.stage for view in views],
                "parameters": {
                    name: {"shape": list(p.local_shape), "part": str(p)}
                    for name, p in pieces.items()
                },
                "elements": sum(math.prod(p.local_shape) for p in pieces.values()),
                "live": plan.live(rank),
            }
        )
    return {
        "model": plan.spec.name,
        "mesh": vars(plan.mesh),
        "stages": plan.stages,
        "place": list(plan.place),
        "trainers": plan.trainers,
        "styles": {n: s for n, s in plan.styles.items() if s != "whole"},
        "schedule": plan.schedule,
        "micro_batches": plan.micro_batches,
        "grid": [[str(a) if a else "" for a in row] for row in plan.grid.rows],
        "batch": batch,
        "ranks": ranks,
        **({"engine": "rpc", "driver": plan.driver} if plan.engine == "rpc" else {}),
        **({"shared": plan.shared} if plan.shared else {}),
        **(
            {
                "engine": plan.engine,
                "devices": list(plan.devices),
                "transfers": transfers(plan, batch, lower=lower),
            }
            if plan.devices
            else {}
        ),
        "links": [vars(link) for link in links(plan, batch, lower=lower)],
        "meetings": [
            {**vars(c), "ranks": list(c.ranks)} for c in collectives(plan, batch, lower=lower)
        ],
    }
