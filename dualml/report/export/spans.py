"""Time spans of each rank of a trial, from the files that it recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualml.experiment.store.run import Array, RunData, Trial
from dualml.experiment.store.times import TIMES
from dualml.parallel.aggregation.times import PARTS
from dualml.parallel.split.timeline import COLUMNS, KINDS

STEPS, COMPUTE, COMMUNICATION = THREADS = ("updates", "compute", "communication")
COMPUTING = ("F", "B", "update")
Moments = Mapping[str, Array]
Message = tuple[float, ...]  # update, replica, slice, stage, micro-batch, direction


class TraceSpan(NamedTuple):
    """An activity that took time, in seconds of the machine's clock.

    Attributes:
        thread: one of `THREADS`.
        sends, receives: the message sent to, or received from, another rank; None without one.
    """

    thread: str
    name: str
    begin: float
    end: float
    args: Mapping[str, Any]
    sends: Message | None = None
    receives: Message | None = None


@dataclass(frozen=True)
class RankTrace:
    """The spans of one rank. ``clock`` names its machine: only times of one machine can be
    compared."""

    clock: str
    spans: Sequence[TraceSpan]


def rank_traces(run: RunData, trial: Trial) -> list[RankTrace]:
    """Return the spans rank by rank, from timelines if the trial has them, else of each update;
    empty if any rank recorded nothing, and for one rank without timelines."""
    n = trial.world_size
    if trial.timelines:
        places = _places(run, trial)
        spans = [
            [*_timeline_spans(own, at)] for own, at in zip(trial.timelines, places, strict=True)
        ]
    elif n > 1 and all(TIMES.path(trial.folder, rank).exists() for rank in range(n)):
        spans = [[*_update_spans(own, run, trial)] for own in TIMES.read_all(trial.folder, n)]
    else:
        return []
    watched = len(trial.usage) == n  # else ranks are threads, or hosts unknown
    clocks = [usage.host for usage in trial.usage] if watched else [""] * n
    return [RankTrace(clock, own) for clock, own in zip(clocks, spans, strict=True)]


def _places(run: RunData, trial: Trial) -> list[tuple[int, int] | None]:
    """Return the replica and slice of each rank, within which its messages stay; None for each rank
    of an arm that is not split."""
    planned = (run.splits.get(trial.arm) or {}).get("ranks")
    if planned is None:
        return [None] * trial.world_size
    return [(rank["data"], rank["tensor"]) for rank in planned]


def _timeline_spans(columns: Moments, place: tuple[int, int] | None) -> Iterator[TraceSpan]:
    """Yield the spans of ``rankR.timeline.npz``: one over each whole update, then one per event."""
    for step in np.unique(columns["step"]):
        chosen = columns["step"] == step
        begin, end = float(columns["begin"][chosen].min()), float(columns["end"][chosen].max())
        yield TraceSpan(STEPS, f"update {step:.0f}", begin, end, {})
    rows = zip(*(columns[name].tolist() for name in COLUMNS), strict=True)
    for step, kind_, stage, micro, backward, begin, end, nbytes in rows:
        kind = KINDS[int(kind_)]
        args = {"update": int(step)}
        args |= {"stage": int(stage)} if stage >= 0 else {}
        args |= {"micro_batch": int(micro)} if micro >= 0 else {}
        args |= {"bytes": int(nbytes)} if nbytes > 0 else {}
        message = None if place is None else (int(step), *place, stage, micro, backward)
        yield TraceSpan(
            COMPUTE if kind in COMPUTING else COMMUNICATION,
            _name(kind, stage, micro, backward),
            begin,
            end,
            args,
            sends=message if kind == "send" and nbytes > 0 else None,
            receives=message if kind == "receive" else None,
        )


def _name(kind: str, stage: float, micro: float, backward: float) -> str:
    """Return the name of a span: ``F stage 1 micro-batch 0``, ``send B stage 1 micro-batch 0``,
    ``reduce``."""
    if stage < 0:
        return "wait until sent" if kind == "send" else kind
    way = "" if kind in ("F", "B") else " B" if backward else " F"
    return f"{kind}{way} stage {stage:.0f} micro-batch {micro:.0f}"


def _update_spans(columns: Moments, run: RunData, trial: Trial) -> Iterator[TraceSpan]:
    """Yield the spans of ``rankR.times.npz``: computing, aggregation with waiting for others, the
    update."""
    strategy = run.settings[trial.arm].aggregation.strategy
    sent = {} if trial.sent_bytes is None else {"most_bytes_sent_by_a_rank": trial.sent_bytes}
    count = len(columns["begin"])
    first = 1 + int(trial.updates or count) - count  # a resumed trial has only its last ones
    rows = zip(*(columns[part].tolist() for part in PARTS), strict=True)
    for number, (begin, arrive, end, done) in enumerate(rows, start=first):
        args = {"update": number}
        yield TraceSpan(STEPS, f"update {number}", begin, done, {})
        yield TraceSpan(COMPUTE, "gradients", begin, arrive, args)
        yield TraceSpan(COMMUNICATION, strategy, arrive, end, {**args, **sent})
        yield TraceSpan(COMPUTE, "update", end, done, args)
