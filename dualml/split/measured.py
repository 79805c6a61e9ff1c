"""What the timelines of a trial's ranks say: where the time went, the bubble, bytes per link.

The bubble of a pipeline is the share of its ranks' time in which no stage works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend.devices import shift_devices
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


F, B, SEND, RECEIVE, COLLECTIVE, REDUCE, UPDATE = range(len(KINDS))


def summary(plan: SplitPlan, ranks: Sequence[Events]) -> dict[str, Any]:
    """Means per update; empty where nothing was recorded.

    A rank waits for a message until it is sent, and for a collective until the last rank comes;
    what remains until it goes on is transfer, which includes adding up. Its own computation is the
    rest of what it did. ``bubble`` is the share of the ranks' time, from the first forward pass to
    the last backward pass of an update, in which no stage works: a median over updates, and
    ``bubble_low`` and ``bubble_high`` its quartiles; ``bubble_passes`` is that of the same passes,
    did messages take no time.
    """
    steps = common(ranks)
    if not len(steps):
        return {}
    sent = sending(plan, ranks)
    arrived = arrivals(plan, ranks)
    rows = []
    for rank, events in enumerate(ranks):
        inside, kind = np.isin(events["step"], steps), events["kind"]
        length = events["end"] - events["begin"]
        totals = dict.fromkeys(("compute_s", "transfer_s", "wait_s"), 0.0)
        totals["update_s"] = float(length[inside & (kind == UPDATE)].sum())
        work = float(length[inside & np.isin(kind, (F, B))].sum())
        shared = 0.0
        for i in np.flatnonzero(inside & np.isin(kind, (SEND, RECEIVE, COLLECTIVE, REDUCE))):
            begin, end = events["begin"][i], events["end"][i]
            ready = begin
            if kind[i] == RECEIVE:
                ready = sent.get(key_of(events, i, rank, plan), begin)
            elif kind[i] in (COLLECTIVE, REDUCE):
                ready = arrived.get((rank, int(i)), begin)
                shared += end - begin if kind[i] == COLLECTIVE else 0.0
            ready = min(max(ready, begin), end)
            totals["wait_s"] += ready - begin
            totals["transfer_s"] += end - ready
        totals["compute_s"] = work - shared + totals["update_s"]
        totals = {name: value / len(steps) for name, value in totals.items()}
        spans = [span(events, step) for step in steps]
        totals["step_s"] = float(np.mean([b - a for a, b in spans]))
        rows.append(totals)
    low, middle, high = np.percentile([bubble(ranks, step) for step in steps], [25, 50, 75])
    return {
        "ranks": rows,
        "bubble": float(middle),
        "bubble_low": float(low),
        "bubble_high": float(high),
        "bubble_passes": float(np.median([replayed(plan, ranks, step) for step in steps])),
        "links": [] if plan.devices else links(plan, ranks, steps),
        **({"transfers": transfers(plan, ranks, steps)} if plan.devices else {}),
        "updates": len(steps),
    }


def common(ranks: Sequence[Events]) -> NDArray[np.float64]:
    """Updates that every rank recorded."""
    sets = [set(np.unique(events["step"]).tolist()) for events in ranks if len(events["step"])]
    if len(sets) < len(ranks) or not sets:
        return np.zeros(0)
    return np.array(sorted(set.intersection(*sets)))


def span(events: Events, step: float) -> tuple[float, float]:
    chosen = events["step"] == step
    return float(events["begin"][chosen].min()), float(events["end"][chosen].max())


Message = tuple[float, int, int, int, int, int]  # update, replica, slice, stage, micro-batch, way


def key_of(events: Events, i: int, rank: int, plan: SplitPlan) -> Message:
    data, _, tensor = plan.mesh.coordinates(rank)
    stage, micro, backward = (int(events[name][i]) for name in ("stage", "micro", "backward"))
    return (float(events["step"][i]), data, tensor, stage, micro, backward)


def sending(plan: SplitPlan, ranks: Sequence[Events]) -> dict[Message, float]:
    """When each message was sent."""
    return {
        key_of(events, i, rank, plan): float(events["begin"][i])
        for rank, events in enumerate(ranks)
        for i in np.flatnonzero((events["kind"] == SEND) & (events["stage"] >= 0))
    }


def arrivals(plan: SplitPlan, ranks: Sequence[Events]) -> dict[tuple[int, int], float]:
    """(rank, event) → when the last rank of its group came to that collective.

    The ranks of a group have the same collectives in the same order.
    """
    times: dict[tuple[int, int], float] = {}
    shared = plan.mesh.tensor_groups() if plan.shared else []
    for kind, groups in (
        (COLLECTIVE, plan.mesh.tensor_groups() if plan.mesh.tensor > 1 else []),
        (REDUCE, plan.same_parameters() or plan.tied_groups() or shared),
    ):
        for group in groups:
            order = [np.flatnonzero(ranks[rank]["kind"] == kind) for rank in group]
            count = min(map(len, order))
            for n in range(1, count + 1):  # from the end: old events may be forgotten
                together = [(rank, int(own[-n])) for rank, own in zip(group, order, strict=True)]
                last = max(float(ranks[rank]["begin"][i]) for rank, i in together)
                times |= dict.fromkeys(together, last)
    return times


def links(
    plan: SplitPlan, ranks: Sequence[Events], steps: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Bytes and messages of an update on each link, as they were sent."""
    sent: dict[tuple[int, int], list[float]] = {}
    for rank, events in enumerate(ranks):
        data, _, tensor = plan.mesh.coordinates(rank)
        chosen = (events["kind"] == SEND) & (events["bytes"] > 0) & np.isin(events["step"], steps)
        for i in np.flatnonzero(chosen):
            to = int(events["stage"][i]) + (-1 if events["backward"][i] else 1)
            target = plan.owner(data, to, tensor, int(events["micro"][i]))
            pair = sent.setdefault((rank, target), [0.0, 0.0])
            pair[0] += events["bytes"][i]
            pair[1] += 1
    n = len(steps)
    return [
        {"source": a, "target": b, "bytes": total / n, "messages": count / n}
        for (a, b), (total, count) in sorted(sent.items())
    ]


def transfers(
    plan: SplitPlan, ranks: Sequence[Events], steps: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Count the bytes and values that an update moves between the devices of each process, as they
    were moved."""
    moved: dict[tuple[int, str, str], list[float]] = {}
    for rank, events in enumerate(ranks):
        devices = shift_devices(plan.devices, plan.mesh.coordinates(rank)[0])
        chosen = (events["kind"] == SEND) & (events["bytes"] > 0) & np.isin(events["step"], steps)
        for i in np.flatnonzero(chosen):
            stage = int(events["stage"][i])
            other = stage + (-1 if events["backward"][i] else 1)
            total = moved.setdefault((rank, devices[stage], devices[other]), [0.0, 0.0])
            total[0] += events["bytes"][i]
            total[1] += 1
    n = len(steps)
    return [
        {"rank": rank, "source": a, "target": b, "bytes": total / n, "messages": count / n}
        for (rank, a, b), (total, count) in sorted(moved.items())
    ]
