"""Events of a trial's timelines: one median update, collective bytes, times of single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualml.experiment.store.run import Array, Trial
from dualml.parallel.split.timeline import KINDS
from dualml.parallel.split.timeline_stats import COLLECTIVE, RECEIVE, REDUCE, SEND
from dualml.report.splits.arms import SplitArm
from dualml.report.splits.gantt import Row

Events = Mapping[str, Array]
Key = tuple[float, ...]  # replica and slice, update, stage, micro-batch, direction


def common_steps(trial: Trial) -> NDArray[np.float64]:
    """Return the numbers of the updates that every rank with any events recorded, ascending."""
    sets = [set(t["step"].tolist()) for t in trial.timelines if len(t["step"])]
    return np.array(sorted(set.intersection(*sets))) if sets else np.zeros(0)


def median_update(trial: Trial) -> float | None:
    """Return the number of the update with the median duration, from the first event of any rank to
    the last; None without events."""
    lengths = {}
    for step in common_steps(trial).tolist():
        chosen = [(t, t["step"] == step) for t in trial.timelines if len(t["step"])]
        first = min(float(t["begin"][at].min()) for t, at in chosen)
        lengths[step] = max(float(t["end"][at].max()) for t, at in chosen) - first
    ordered = sorted(lengths, key=lambda s: (lengths[s], s))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def timeline_rows(arm: SplitArm, trial: Trial) -> list[Row]:
    """Return the median update as rows of a timeline figure: rank, label, kind, begin and end in
    seconds; empty without events. A message lasts from its send until a waiting receiver has it;
    sends without bytes or without a stage are left out."""
    step = median_update(trial)
    if step is None:
        return []
    places = _places(arm)
    received = dict(_messages(trial, RECEIVE, step, places))
    rows: list[Row] = []
    for rank, events in enumerate(trial.timelines):
        for i in np.flatnonzero(events["step"] == step):
            kind, stage = KINDS[int(events["kind"][i])], int(events["stage"][i])
            begin, end = float(events["begin"][i]), float(events["end"][i])
            if kind == "send":
                if stage < 0 or events["bytes"][i] <= 0:
                    continue
                waited = received.get(_key(events, i, places[rank]))
                end = max(end, waited[1]) if waited and waited[0] <= end else end
            passes = kind in ("F", "B") and stage >= 0
            label = f"{stage}{kind}{int(events['micro'][i])}" if passes else ""
            rows.append((rank, label, kind, begin, end))
    return rows


def _places(arm: SplitArm) -> list[float]:
    """Return rank → a number for its replica and slice, within which its messages stay; 0 for every
    rank without a plan."""
    places = [1000.0 * r["data"] + r["tensor"] for r in arm.plan.get("ranks") or ()]
    return places or [0.0] * 1000


def _key(events: Events, i: int, place: float) -> Key:
    """Return the key that identifies a message: replica and slice, update, stage, micro-batch,
    direction."""
    names = ("step", "stage", "micro", "backward")
    return (place, *(float(events[name][i]) for name in names))


def _messages(
    trial: Trial, kind: int, step: float | None, places: list[float]
) -> Iterator[tuple[Key, tuple[float, ...]]]:
    """Yield message key → begin, end and bytes for all events of a kind, of one update or (``step``
    None) of all."""
    for rank, events in enumerate(trial.timelines):
        chosen = (events["kind"] == kind) & (events["stage"] >= 0)
        if step is not None:
            chosen = chosen & (events["step"] == step)
        for i in np.flatnonzero(chosen):
            values = tuple(float(events[name][i]) for name in ("begin", "end", "bytes"))
            yield _key(events, int(i), places[rank]), values


# --- bytes and seconds ----------------------------------------------------------------------------


class CollectiveCalls(NamedTuple):
    """Mean number and bytes of a kind of collective in an update on one rank."""

    calls: float
    nbytes: float


def collective_calls(trial: Trial, rank: int) -> dict[str, CollectiveCalls]:
    """Return the recorded collectives of a rank that occurred, as means over the updates:
    ``forward`` and ``backward`` inside layers, and ``gradients``; empty if nothing was recorded."""
    updates = common_steps(trial)
    if rank >= len(trial.timelines) or not len(updates):
        return {}
    events = trial.timelines[rank]
    inside, backward = events["kind"] == COLLECTIVE, events["backward"] == 1
    ways = {"forward": inside & ~backward, "backward": inside & backward}
    ways["gradients"] = events["kind"] == REDUCE
    recorded, n = np.isin(events["step"], updates), len(updates)
    return {
        way: CollectiveCalls(float(chosen.sum()) / n, float(events["bytes"][chosen].sum()) / n)
        for way, of_way in ways.items()
        if (chosen := recorded & of_way).any()
    }


def message_times(arm: SplitArm, trial: Trial) -> Iterator[tuple[int, int, float]]:
    """Yield (2, bytes, seconds from sending to receipt) of every message whose receiver was already
    waiting when it was sent; 2 is the number of ranks, as in `collective_times`."""
    places = _places(arm)
    sent = dict(_messages(trial, SEND, None, places))
    for key, (begin, end, _) in _messages(trial, RECEIVE, None, places):
        start, _, nbytes = sent.get(key, (0.0, 0.0, 0.0))
        if nbytes > 0 and begin <= start < end:
            yield 2, int(nbytes), end - start


def collective_times(arm: SplitArm, trial: Trial) -> Iterator[tuple[int, int, float]]:
    """Yield (ranks, bytes, seconds) of every all-reduce, from the arrival of the last rank to the
    end on the last rank. All-reduces that the events do not tell from other collectives are
    skipped."""
    planned = arm.plan.get("meetings") or ()
    for kind, ways in ((COLLECTIVE, ("forward", "backward")), (REDUCE, ("gradients",))):
        chosen = [c for c in planned if c["kind"].split(" ")[-1] in ways]
        if any(not c["kind"].startswith("all_reduce") for c in chosen):
            continue  # gathered bytes cannot be separated
        for group in {tuple(c["ranks"]) for c in chosen}:
            if max(group) < len(trial.timelines):
                yield from _match_calls(trial, group, kind)


def _match_calls(
    trial: Trial, group: tuple[int, ...], kind: int
) -> Iterator[tuple[int, int, float]]:
    """Yield (number of ranks, bytes, seconds from the last begin to the last end) of the events of
    this ``kind`` on the ranks of a group, matched across ranks from the last event backwards.
    Events of unequal or no bytes, or of no time, are skipped; an event does not tell its group."""
    chosen = [np.flatnonzero(trial.timelines[rank]["kind"] == kind) for rank in group]
    for n in range(1, min(map(len, chosen)) + 1):  # from the end: old events may have been dropped
        at = [(trial.timelines[rank], order[-n]) for rank, order in zip(group, chosen, strict=True)]
        nbytes = {int(events["bytes"][i]) for events, i in at}
        seconds = max(e["end"][i] for e, i in at) - max(e["begin"][i] for e, i in at)
        if len(nbytes) == 1 and min(nbytes) > 0 and seconds > 0:
            yield len(group), nbytes.pop(), float(seconds)
