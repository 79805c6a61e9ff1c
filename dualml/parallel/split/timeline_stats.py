"""Statistics of the recorded timelines of a trial: time per kind of work, pipeline bubble, and
bytes per link.

The bubble of a pipeline is the share of its ranks' time in which no stage computes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend.devices import shift_devices
from dualml.parallel.split.order import dependencies
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.schedule import Action, Kind
from dualml.parallel.split.timeline import KINDS

Events = Mapping[str, NDArray[np.float64]]
PASSES = (KINDS.index("F"), KINDS.index("B"))


def measured_bubble(ranks: Sequence[Events], step: float) -> float:
    """Return the measured bubble of update ``step``: the share (0 … 1) of the ranks' time, from its
    first forward pass on any rank to its last backward pass, in which no stage computes."""
    begin, end, busy = np.inf, -np.inf, 0.0
    for events in ranks:
        chosen = pass_indices(events, step)
        if len(chosen):
            begin = min(begin, float(events["begin"][chosen].min()))
            end = max(end, float(events["end"][chosen].max()))
            busy += float((events["end"] - events["begin"])[chosen].sum())
    return idle_share(busy, len(ranks), end - begin)


def replayed_bubble(plan: SplitPlan, ranks: Sequence[Events], step: float) -> float:
    """Return the bubble (0 … 1) of update ``step`` if messages took no time and the passes kept
    their order and durations.

    The measured bubble minus this value is due to messages and work between passes; this value
    minus the schedule's theoretical bubble is due to passes of different lengths.
    """
    actions = []
    for rank, events in enumerate(ranks):
        data, _, tensor = plan.mesh.coordinates(rank)
        for i in pass_indices(events, step):
            kind: Kind = "F" if events["kind"][i] == PASSES[0] else "B"
            action = Action(int(events["stage"][i]), kind, int(events["micro"][i]))
            begin, end = float(events["begin"][i]), float(events["end"][i])
            actions.append((begin, end, rank, (data, tensor), action))
    clock: dict[int, float] = defaultdict(float)
    done: dict[tuple[tuple[int, int], Action], float] = {}
    busy = 0.0
    for begin, end, rank, replica, action in sorted(actions, key=lambda x: x[:3]):
        there = [done.get((replica, need), 0.0) for need in dependencies(action, len(plan.stages))]
        clock[rank] = max([clock[rank], *there]) + end - begin
        done[replica, action] = clock[rank]
        busy += end - begin
    return idle_share(busy, len(ranks), max(clock.values(), default=0.0))


def pass_indices(events: Events, step: float) -> NDArray[np.int64]:
    """Return the indices of the events that are forward or backward passes of update ``step``."""
    return np.flatnonzero((events["step"] == step) & np.isin(events["kind"], PASSES))


def idle_share(busy: float, ranks: int, seconds: float) -> float:
    """Return the idle share (0 … 1) of ``ranks`` × ``seconds``, given the total busy seconds; 0
    without any time."""
    return 1 - busy / (ranks * seconds) if seconds > 0 else 0.0


F, B, SEND, RECEIVE, COLLECTIVE, REDUCE, UPDATE = range(len(KINDS))


def summary(plan: SplitPlan, ranks: Sequence[Events]) -> dict[str, Any]:
    """Return mean times per update, the bubble and the traffic, over the updates that every rank
    recorded; empty without any.

    ``ranks``: each rank's mean seconds ``compute_s`` (with ``update_s``, the optimizer), ``wait_s``
    (for a message until its sending begins, for a collective until the last rank arrives),
    ``transfer_s`` (the rest, with the reduction) and ``step_s``. ``bubble``: share of the ranks'
    time, from first forward to last backward pass of an update, in which no stage computes, the
    median over updates; ``bubble_low``, ``bubble_high``: quartiles; ``bubble_passes``: that of the
    same passes if messages took no time. ``links``, with devices ``transfers``: see
    `measured_links`, `measured_transfers`; ``updates``: number of updates.
    """
    steps = common_steps(ranks)
    if not len(steps):
        return {}
    sent = send_times(plan, ranks)
    arrived = last_arrival_times(plan, ranks)
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
                ready = sent.get(message_key(events, i, rank, plan), begin)
            elif kind[i] in (COLLECTIVE, REDUCE):
                ready = arrived.get((rank, int(i)), begin)
                shared += end - begin if kind[i] == COLLECTIVE else 0.0
            ready = min(max(ready, begin), end)
            totals["wait_s"] += ready - begin
            totals["transfer_s"] += end - ready
        totals["compute_s"] = work - shared + totals["update_s"]
        totals = {name: value / len(steps) for name, value in totals.items()}
        spans = [step_span(events, step) for step in steps]
        totals["step_s"] = float(np.mean([b - a for a, b in spans]))
        rows.append(totals)
    low, middle, high = np.percentile(
        [measured_bubble(ranks, step) for step in steps], [25, 50, 75]
    )
    return {
        "ranks": rows,
        "bubble": float(middle),
        "bubble_low": float(low),
        "bubble_high": float(high),
        "bubble_passes": float(np.median([replayed_bubble(plan, ranks, step) for step in steps])),
        "links": [] if plan.devices else measured_links(plan, ranks, steps),
        **({"transfers": measured_transfers(plan, ranks, steps)} if plan.devices else {}),
        "updates": len(steps),
    }


def common_steps(ranks: Sequence[Events]) -> NDArray[np.float64]:
    """Return the steps that every rank recorded, ascending; empty if a rank has no events."""
    sets = [set(np.unique(events["step"]).tolist()) for events in ranks if len(events["step"])]
    if len(sets) < len(ranks) or not sets:
        return np.zeros(0)
    return np.array(sorted(set.intersection(*sets)))


def step_span(events: Events, step: float) -> tuple[float, float]:
    """Return when the first event of a step began and the last one ended, in seconds."""
    chosen = events["step"] == step
    return float(events["begin"][chosen].min()), float(events["end"][chosen].max())


Message = tuple[float, int, int, int, int, int]  # step, data, tensor, stage, micro, backward


def message_key(events: Events, i: int, rank: int, plan: SplitPlan) -> Message:
    """Return (step, data, tensor, stage, micro-batch, backward) of event ``i`` of ``rank``, by
    which the send and the receive of one message are matched."""
    data, _, tensor = plan.mesh.coordinates(rank)
    stage, micro, backward = (int(events[name][i]) for name in ("stage", "micro", "backward"))
    return (float(events["step"][i]), data, tensor, stage, micro, backward)


def send_times(plan: SplitPlan, ranks: Sequence[Events]) -> dict[Message, float]:
    """Return, for each recorded message between stages, its `message_key` → time in seconds at
    which its send began."""
    return {
        message_key(events, i, rank, plan): float(events["begin"][i])
        for rank, events in enumerate(ranks)
        for i in np.flatnonzero((events["kind"] == SEND) & (events["stage"] >= 0))
    }


def last_arrival_times(plan: SplitPlan, ranks: Sequence[Events]) -> dict[tuple[int, int], float]:
    """Return (rank, index of the event) → time in seconds at which the last rank of the group
    entered that collective, for all collectives and gradient reductions that every rank of the
    group recorded.

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
            for n in range(1, count + 1):  # from the end: old events may be dropped
                together = [(rank, int(own[-n])) for rank, own in zip(group, order, strict=True)]
                last = max(float(ranks[rank]["begin"][i]) for rank, i in together)
                times |= dict.fromkeys(together, last)
    return times


def average_sends(
    ranks: Sequence[Events],
    steps: NDArray[np.float64],
    names: Sequence[str],
    ends: Callable[[int, int, int, int], tuple[Any, ...]],
) -> list[dict[str, Any]]:
    """Return who sends to whom, sorted, with the ``bytes`` and ``messages`` per update, averaged
    over ``steps``; sends without bytes do not count.

    Args:
        names: keys of the result for the parts of what ``ends`` returns, such as ``source`` and
            ``target``.
        ends: returns sender and receiver of a message, as a tuple, for its rank, stage, stage that
            receives it, and micro-batch.
    """
    sent: dict[tuple[Any, ...], list[float]] = {}
    for rank, events in enumerate(ranks):
        chosen = (events["kind"] == SEND) & (events["bytes"] > 0) & np.isin(events["step"], steps)
        for i in np.flatnonzero(chosen):
            stage, micro = int(events["stage"][i]), int(events["micro"][i])
            other = stage + (-1 if events["backward"][i] else 1)
            total = sent.setdefault(ends(rank, stage, other, micro), [0.0, 0.0])
            total[0] += events["bytes"][i]
            total[1] += 1
    n = len(steps)
    return [
        {**dict(zip(names, key, strict=True)), "bytes": nbytes / n, "messages": messages / n}
        for key, (nbytes, messages) in sorted(sent.items())
    ]


def measured_links(
    plan: SplitPlan, ranks: Sequence[Events], steps: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return ``source``, ``target``, and the ``bytes`` and ``messages`` per update, measured and
    averaged over the updates with the numbers ``steps``, of each link between two ranks over which
    bytes went, in that direction."""

    def find_ends(rank: int, stage: int, other: int, micro: int) -> tuple[int, int]:
        data, _, tensor = plan.mesh.coordinates(rank)
        return rank, plan.owner(data, other, tensor, micro)

    return average_sends(ranks, steps, ("source", "target"), find_ends)


def measured_transfers(
    plan: SplitPlan, ranks: Sequence[Events], steps: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return ``rank``, the devices ``source`` and ``target``, and the ``bytes`` and ``messages``
    (values) per update, measured and averaged over ``steps``, that each process moves between them
    in that direction."""
    replicas = [plan.mesh.coordinates(rank)[0] for rank in range(len(ranks))]
    devices = [shift_devices(plan.devices, replica) for replica in replicas]

    def find_ends(rank: int, stage: int, other: int, micro: int) -> tuple[int, str, str]:
        return rank, devices[rank][stage], devices[rank][other]

    return average_sends(ranks, steps, ("rank", "source", "target"), find_ends)
