"""What the timelines of a trial say beyond its means: one update, bytes of collectives, times of
single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.report.model import Array, Run, Trial
from dualml.report.pipelines import Row
from dualml.report.splits import arms
from dualml.split.measured import COLLECTIVE, RECEIVE, REDUCE, SEND
from dualml.split.timeline import KINDS

Events = Mapping[str, Array]
Key = tuple[float, float, float, float, float]  # replica and slice, update, stage, micro-batch, way


def steps(trial: Trial) -> NDArray[np.float64]:
    """Updates that every rank with events recorded."""
    sets = [set(t["step"].tolist()) for t in trial.timelines if len(t["step"])]
    return np.array(sorted(set.intersection(*sets))) if sets else np.zeros(0)


def typical(trial: Trial) -> float | None:
    """The update whose duration, from the first event of any rank to the last, is the median."""
    lengths = {}
    for step in steps(trial):
        times = [_times(t, step) for t in trial.timelines if len(t["step"])]
        lengths[float(step)] = max(b for _, b in times) - min(a for a, _ in times)
    ordered = sorted(lengths, key=lambda s: (lengths[s], s))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _times(events: Events, step: float) -> tuple[float, float]:
    mine = events["step"] == step
    return float(events["begin"][mine].min()), float(events["end"][mine].max())


def rows(run: Run, trial: Trial) -> list[Row]:
    """The typical update as `timeline_figure` takes it; a message is on its way from its sending
    until the receiver, where it was waiting, has it."""
    step = typical(trial)
    if step is None:
        return []
    places = _rows(run, trial.arm)
    received = dict(_messages(trial, RECEIVE, step, places))
    made: list[Row] = []
    for rank, events in enumerate(trial.timelines):
        for i in np.flatnonzero(events["step"] == step):
            name, stage = KINDS[int(events["kind"][i])], int(events["stage"][i])
            begin, end = float(events["begin"][i]), float(events["end"][i])
            label = ""
            if name in ("F", "B") and stage >= 0:
                label = f"{stage}{name}{int(events['micro'][i])}"
            if name == "send":
                if stage < 0 or events["bytes"][i] <= 0:
                    continue
                there = received.get(_key(events, i, places[rank]))
                if there is not None and there[0] <= end:
                    end = max(end, there[1])
            made.append((rank, label, name, begin, end))
    return made


def _rows(run: Run, arm: str) -> list[float]:
    """Rank → a number for its replica and slice: messages stay inside."""
    ranks = arms.plan(run, arm).get("ranks") or ()
    made = [1000.0 * r["data"] + r["tensor"] for r in ranks]
    return made or [0.0] * 1000


def _key(events: Events, i: int, place: float) -> Key:
    step, stage, micro, way = (
        float(events[name][i]) for name in ("step", "stage", "micro", "backward")
    )
    return (place, step, stage, micro, way)


def _messages(
    trial: Trial, kind: int, step: float | None, places: list[float]
) -> Iterator[tuple[Key, tuple[float, float, float]]]:
    """Key → begin, end, bytes of the events of a kind."""
    for rank, events in enumerate(trial.timelines):
        chosen = (events["kind"] == kind) & (events["stage"] >= 0)
        if step is not None:
            chosen = chosen & (events["step"] == step)
        for i in np.flatnonzero(chosen):
            told = tuple(float(events[name][i]) for name in ("begin", "end", "bytes"))
            yield _key(events, int(i), places[rank]), (told[0], told[1], told[2])


# --- bytes and seconds ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Met:
    """Mean calls and bytes of a kind of collective in an update, on one rank."""

    calls: float
    nbytes: float


def met(trial: Trial, rank: int) -> dict[str, Met]:
    """``forward`` and ``backward`` inside layers, ``gradients``: as the rank recorded them."""
    if rank >= len(trial.timelines):
        return {}
    events, n = trial.timelines[rank], len(steps(trial))
    found = {}
    inside = np.isin(events["step"], steps(trial))
    for name, kind, way in (
        ("forward", COLLECTIVE, 0.0), ("backward", COLLECTIVE, 1.0), ("gradients", REDUCE, None),
    ):  # fmt: skip
        chosen = inside & (events["kind"] == kind)
        if way is not None:
            chosen = chosen & (events["backward"] == way)
        if n and chosen.any():
            found[name] = Met(float(chosen.sum()) / n, float(events["bytes"][chosen].sum()) / n)
    return found


def message_times(run: Run, trial: Trial) -> Iterator[tuple[int, float]]:
    """(bytes, seconds) of every message for which its receiver waited when it was sent: from
    sending until it is there."""
    places = _rows(run, trial.arm)
    sent = dict(_messages(trial, SEND, None, places))
    for key, (begin, end, _) in _messages(trial, RECEIVE, None, places):
        there = sent.get(key)
        if there is not None and there[2] > 0 and begin <= there[0] < end:
            yield int(there[2]), end - there[0]


def collective_times(run: Run, trial: Trial) -> Iterator[tuple[int, int, float]]:
    """(ranks, bytes, seconds) of every all-reduce, from when the last rank comes to when the last
    one goes."""
    plan: Mapping[str, Any] = arms.plan(run, trial.arm)
    meetings = plan.get("meetings") or ()
    for kind, names in ((COLLECTIVE, ("forward", "backward")), (REDUCE, ("gradients",))):
        mine = [m for m in meetings if m["kind"].split(" ")[-1] in names]
        if not mine or any(not m["kind"].startswith("all_reduce") for m in mine):
            continue  # what was gathered cannot be told apart
        for group in {tuple(m["ranks"]) for m in mine}:
            if max(group) < len(trial.timelines):
                yield from _together(trial, group, kind)


def _together(trial: Trial, group: tuple[int, ...], kind: int) -> Iterator[tuple[int, int, float]]:
    chosen = [np.flatnonzero(trial.timelines[r]["kind"] == kind) for r in group]
    for n in range(1, min(map(len, chosen)) + 1):  # from the end: old events may be forgotten
        at = [(trial.timelines[r], order[-n]) for r, order in zip(group, chosen, strict=True)]
        nbytes = {int(events["bytes"][i]) for events, i in at}
        seconds = max(e["end"][i] for e, i in at) - max(e["begin"][i] for e, i in at)
        if len(nbytes) == 1 and min(nbytes) > 0 and seconds > 0:
            yield len(group), nbytes.pop(), float(seconds)
