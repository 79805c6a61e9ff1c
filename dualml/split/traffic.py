"""What crosses which link in an update of a split model, and how many bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dualml.split import calls
from dualml.split.horizontal import ConjugatePair

if TYPE_CHECKING:
    from dualml.split.plan import SplitPlan

FLOAT = 4  # bytes of an element between ranks


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


def links(plan: SplitPlan, batch: int) -> list[Link]:
    """Messages between stages in an update of ``batch`` samples, by pair of ranks."""
    crossings: dict[tuple[int, int, str], tuple[int, int]] = {}
    if plan.engine == "rpc":
        crossings = calls.crossing(plan, batch, FLOAT)
    for data, _, micro, size in plan.micro(batch) if plan.engine == "messages" else ():
        for stage in range(len(plan.stages) - 1):
            nbytes = size * plan.boundary(stage) * FLOAT
            for tensor in range(plan.mesh.tensor):
                a = plan.owner(data, stage, tensor, micro)
                b = plan.owner(data, stage + 1, tensor, micro)
                for source, target, what in ((a, b, "activations"), (b, a, "gradients")):
                    if source != target and size:
                        count, total = crossings.get((source, target, what), (0, 0))
                        crossings[source, target, what] = (count + 1, total + nbytes)
    return [Link(s, t, n, b, what) for (s, t, what), (n, b) in sorted(crossings.items())]


def collectives(plan: SplitPlan, batch: int) -> list[Collective]:
    """Collectives in an update of ``batch`` samples."""
    sums: dict[tuple[tuple[int, ...], str], tuple[int, int]] = {}

    def add(ranks: Sequence[int], kind: str, nbytes: int) -> None:
        count, total = sums.get((tuple(ranks), kind), (0, 0))
        sums[tuple(ranks), kind] = (count + 1, total + nbytes)

    for group in plan.mesh.tensor_groups() if plan.mesh.tensor > 1 else ():
        data = plan.mesh.coordinates(group[0])[0]
        for view in plan.views(group[0])[0]:
            for pair in (item for item in view.items if isinstance(item, ConjugatePair)):
                for d, _, _, size in plan.micro(batch):
                    if d == data and size:
                        kind = "all_gather" if pair.kind == "gather" else "all_reduce"
                        way = "backward" if pair.kind == "copy" else "forward"
                        nbytes = size * math.prod(pair.shape) * FLOAT
                        each = nbytes // plan.mesh.tensor if kind == "all_gather" else nbytes
                        add(group, f"{kind} {way}", each)
    for group in plan.same_parameters():
        total = sum(math.prod(p.local) for p in plan.views(group[0])[1].values())
        add(group, "all_reduce gradients", total * FLOAT)
    return [Collective(ranks, kind, n, b) for (ranks, kind), (n, b) in sums.items()]
