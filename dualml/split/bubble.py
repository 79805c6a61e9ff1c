"""The bubble of a pipeline: the share of its ranks' time in which no stage works."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.split.order import needs
from dualml.split.plan import SplitPlan
from dualml.split.schedule import Action, Kind
from dualml.split.timeline import KINDS

Events = Mapping[str, NDArray[np.float64]]
PASSES = (KINDS.index("F"), KINDS.index("B"))


def bubble(ranks: Sequence[Events], step: float) -> float:
    """Of one update as it was, from its first forward to its last backward pass."""
    begin, end, busy = np.inf, -np.inf, 0.0
    for events in ranks:
        chosen = passes(events, step)
        if len(chosen):
            begin = min(begin, float(events["begin"][chosen].min()))
            end = max(end, float(events["end"][chosen].max()))
            busy += float((events["end"] - events["begin"])[chosen].sum())
    return idle(busy, len(ranks), end - begin)


def replayed(plan: SplitPlan, ranks: Sequence[Events], step: float) -> float:
    """Of the same passes in their order and as long as they were, did messages take no time: what
    `bubble` has above it is messages and what is done between passes, what it has above the
    schedule's own bubble is that passes differ in length."""
    actions = []
    for rank, events in enumerate(ranks):
        data, _, tensor = plan.mesh.coordinates(rank)
        for i in passes(events, step):
            kind: Kind = "F" if events["kind"][i] == PASSES[0] else "B"
            action = Action(int(events["stage"][i]), kind, int(events["micro"][i]))
            begin, end = float(events["begin"][i]), float(events["end"][i])
            actions.append((begin, end, rank, (data, tensor), action))
    clock: dict[int, float] = defaultdict(float)
    done: dict[tuple[tuple[int, int], Action], float] = {}
    busy = 0.0
    for begin, end, rank, replica, action in sorted(actions, key=lambda x: x[:3]):
        there = [done.get((replica, need), 0.0) for need in needs(action, len(plan.stages))]
        clock[rank] = max([clock[rank], *there]) + end - begin
        done[replica, action] = clock[rank]
        busy += end - begin
    return idle(busy, len(ranks), max(clock.values(), default=0.0))


def passes(events: Events, step: float) -> NDArray[np.int64]:
    """Positions of an update's forward and backward passes."""
    return np.flatnonzero((events["step"] == step) & np.isin(events["kind"], PASSES))


def idle(busy: float, ranks: int, seconds: float) -> float:
    return 1 - busy / (ranks * seconds) if seconds > 0 else 0.0
