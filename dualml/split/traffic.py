"""What crosses which link in an update of a split model, and how many bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dualml.backend import Segment
from dualml.backend.devices import shift_devices
from dualml.split.horizontal import ConjugatePair, Ring
from dualml.split.plan import SplitPlan
from dualml.split.ring import keys_and_values

#: Bytes of an element between ranks: of float32, and of a lower type.
FLOAT, LOWER = 4, 2


@dataclass(frozen=True)
class Link:
    """What one rank sends another in an update."""

    source: int
    target: int
    messages: int
    nbytes: int
    what: str


@dataclass(frozen=True)
class Collective:
    """A collective of some ranks in an update: ``calls`` of it, ``nbytes`` together."""

    ranks: tuple[int, ...]
    kind: str
    calls: int
    nbytes: int


def links(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[Link]:
    """Messages between stages in an update of ``batch`` samples, by pair of ranks.

    Args:
        lower: whether the model is trained in a lower precision.
    """
    messages, sizes = Counter[tuple[int, int, str]](), Counter[tuple[int, int, str]]()
    crossing = _called if plan.engine == "rpc" else _sent
    for source, target, what, elements, stage in crossing(plan, batch):
        if elements and source != target:
            messages[source, target, what] += 1
            short = lower and stage >= 0 and plan.lower(stage)
            sizes[source, target, what] += elements * (LOWER if short else FLOAT)
    return [Link(*key[:2], messages[key], sizes[key], key[2]) for key in sorted(messages)]


Message = tuple[int, int, str, int, int]


def _sent(plan: SplitPlan, batch: int) -> Iterator[Message]:
    """(source, target, what, elements, of the output of which stage) of the messages of
    neighbouring stages."""
    for data, _, micro, size in plan.micro(batch):
        for stage in range(len(plan.stages) - 1):
            elements = size * plan.boundary(stage)
            for tensor in range(plan.mesh.tensor):
                below, above = (plan.owner(data, s, tensor, micro) for s in (stage, stage + 1))
                yield below, above, "activations", elements, stage
                yield above, below, "gradients", elements, stage


def _called(plan: SplitPlan, batch: int) -> Iterator[Message]:
    """The same of remote procedure calls; samples are of stage -1.

    The driver has the data and the loss. It calls a stage with an activation and passes what it
    gets back on to the next stage; gradients go the same way back. So all of them cross its links.
    """
    layers, driver = dict(plan.spec.layers), plan.driver
    learns = [any(layers[n].parameters() for n in names) for names in plan.stages]
    for _, _, _, size in plan.micro(batch):
        for stage, there in enumerate(plan.place):
            into = plan.boundary(stage - 1) if stage else math.prod(plan.spec.input_shape)
            into, out, below = size * into, size * plan.boundary(stage), any(learns[:stage])
            yield driver, there, "activations" if stage else "samples", into, stage - 1
            yield there, driver, "activations", out, stage
            if below or learns[stage]:
                yield driver, there, "gradients", out, stage
            if below:
                yield there, driver, "gradients", into, stage - 1


def transfers(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[dict[str, Any]]:
    """Count what moves between the devices of each process in an update of ``batch`` samples.

    Args:
        lower: whether the model is trained in a lower precision.
    """
    messages, sizes = Counter[tuple[int, str, str, str]](), Counter[tuple[int, str, str, str]]()
    for rank in range(plan.world_size if plan.devices else 0):
        data = plan.mesh.coordinates(rank)[0]
        devices = shift_devices(plan.devices, data)
        for replica, _, _, size in plan.micro(batch):
            for stage in range(len(plan.stages) - 1):
                if replica != data or not size or not plan.crosses(stage, stage + 1):
                    continue
                elements, low = size * plan.boundary(stage), lower and plan.lower(stage)
                below, above = devices[stage : stage + 2]
                for key in (
                    (rank, below, above, "activations"),
                    (rank, above, below, "gradients"),
                ):
                    messages[key] += 1
                    sizes[key] += elements * (LOWER if low else FLOAT)
    names = ("rank", "source", "target", "what")
    return [
        {**dict(zip(names, key, strict=True)), "messages": messages[key], "nbytes": sizes[key]}
        for key in sorted(messages)
    ]


def collectives(plan: SplitPlan, batch: int, *, lower: bool = False) -> list[Collective]:
    """Collectives in an update of ``batch`` samples: sums are of float32 in any precision."""
    calls, sizes = Counter[tuple[tuple[int, ...], str]](), Counter[tuple[tuple[int, ...], str]]()
    for group in plan.mesh.tensor_groups() if plan.mesh.tensor > 1 else ():
        data = plan.mesh.coordinates(group[0])[0]
        for view in plan.views(group[0])[0]:
            for item in view.items:
                for d, _, _, size in plan.micro(batch):
                    if d != data or not size or isinstance(item, Segment):
                        continue
                    for kind, number, each in _between(item, plan, size, lower):
                        calls[tuple(group), kind] += number
                        sizes[tuple(group), kind] += each
    for group in plan.same_parameters():
        total = sum(math.prod(p.local) for p in plan.views(group[0])[1].values())
        calls[tuple(group), "all_reduce gradients"] += 1
        sizes[tuple(group), "all_reduce gradients"] += total * FLOAT
    for group in plan.tied_groups():
        pieces = plan.views(group[0])[1]
        total = sum(math.prod(pieces[name].local) for name in plan.tied)
        calls[tuple(group), "all_reduce gradients"] += 1
        sizes[tuple(group), "all_reduce gradients"] += total * FLOAT
    for group in plan.mesh.tensor_groups() if plan.shared else ():
        pieces = plan.views(group[0])[1]
        total = sum(math.prod(p.local) for p in pieces.values() if p.parts == 1)
        calls[tuple(group), "all_reduce gradients"] += 1
        sizes[tuple(group), "all_reduce gradients"] += total * FLOAT
    return [Collective(*key, calls[key], sizes[key]) for key in calls]


#: Kind of a pair → its collectives.
PAIRS = {
    "copy": ["all_reduce backward"],
    "sum": ["all_reduce forward"],
    "gather": ["all_gather forward"],
    "collect": ["all_gather forward", "reduce_scatter backward"],
    "scatter": ["reduce_scatter forward", "all_gather backward"],
    "take": [],
}


def _between(
    item: ConjugatePair | Ring, plan: SplitPlan, size: int, lower: bool
) -> Iterator[tuple[str, int, int]]:
    """Collectives between two segments for ``size`` samples: which and when, calls, bytes of a
    rank. An all-gather counts the slice that each rank gives."""
    parts = plan.mesh.tensor
    if isinstance(item, Ring):
        each = keys_and_values(item.layer, parts) * size * FLOAT
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


def moved(plan: SplitPlan, batch: int, *, lower: bool = False) -> int:
    """Count the bytes that all ranks together send in an update of ``batch`` samples: messages as
    they are, of each collective those of a ring.

    Args:
        lower: whether the model is trained in a lower precision.
    """
    total = sum(link.nbytes for link in links(plan, batch, lower=lower))
    for each in collectives(plan, batch, lower=lower):
        n = len(each.ranks)
        way = each.kind.partition(" ")[0]
        times = {"all_reduce": 2 * (n - 1), "reduce_scatter": n - 1, "all_gather": n * (n - 1)}
        total += each.nbytes * times.get(way, n)
    return total


def describe(plan: SplitPlan, batch: int, *, lower: bool = False) -> dict[str, Any]:
    """JSON form of a plan and its traffic, for people and for the report.

    Args:
        lower: whether the model is trained in a lower precision.
    """
    ranks = []
    for rank in range(plan.world_size):
        views, pieces = plan.views(rank)
        data, pipeline, tensor = plan.mesh.coordinates(rank)
        ranks.append({
            "rank": rank, "data": data, "pipeline": pipeline, "tensor": tensor,
            "stages": [view.stage for view in views],
            "parameters": {name: {"shape": list(p.local), "part": str(p)}
                           for name, p in pieces.items()},
            "elements": sum(math.prod(p.local) for p in pieces.values()),
            "live": plan.live(rank),
        })  # fmt: skip
    return {
        "model": plan.spec.name, "mesh": vars(plan.mesh),
        "stages": plan.stages, "place": list(plan.place), "trainers": plan.trainers,
        "styles": {n: s for n, s in plan.styles.items() if s != "whole"},
        "schedule": plan.schedule, "micro_batches": plan.micro_batches,
        "grid": [[str(a) if a else "" for a in row] for row in plan.grid.rows],
        "batch": batch, "ranks": ranks,
        **({"engine": "rpc", "driver": plan.driver} if plan.engine == "rpc" else {}),
        **({"shared": plan.shared} if plan.shared else {}),
        **({"engine": plan.engine, "devices": list(plan.devices),
            "transfers": transfers(plan, batch, lower=lower)} if plan.devices else {}),
        "links": [vars(link) for link in links(plan, batch, lower=lower)],
        "meetings": [{**vars(c), "ranks": list(c.ranks)}
                     for c in collectives(plan, batch, lower=lower)],
    }  # fmt: skip
