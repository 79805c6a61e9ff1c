"""Chrome's trace event format, for Perfetto and chrome://tracing: the activities of each rank.

Source: Google, "Trace Event Format": complete events (X), metadata (M), flow events (s, f).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.experiment.store.run import RunData, Trial
from dualml.report.export.base import TARGETS, ExportJob
from dualml.report.export.spans import THREADS, RankTrace, TraceSpan, rank_traces

Event = dict[str, Any]


class PlacedSpan(NamedTuple):
    """A span as it is written: rank, number of the thread, begin and end in nanoseconds."""

    rank: int
    thread: int
    begin: int
    end: int
    span: TraceSpan


@TARGETS.register("trace", 60)
def write(job: ExportJob) -> str:
    """Write a file per trial whose ranks recorded timelines and return the folder: a process per
    rank, with threads for updates, computing and communicating, and arrows from each send to its
    receive. Raise `UserError` if no trial did, or the requested folder is not empty."""
    with job.folder() as out:
        for trial in job.trials:
            if ranks := rank_traces(job.run, trial):
                name = f"{trial.arm}.{trial.backend}.seed{trial.seed}.json"
                content = json.dumps(make_trace(ranks, job.run, trial), separators=(",", ":"))
                write_bytes(out / name, content.encode())
        if not any(out.iterdir()):
            raise UserError(
                f"no rank of {', '.join(map(str, job.run.folders))} recorded when it did what; "
                "trials with several ranks do, as those of `dualml run lab2` and `dualml run lab4`"
            )
    return str(out)


def make_trace(ranks: Sequence[RankTrace], run: RunData, trial: Trial) -> dict[str, Any]:
    """Return the content of a file, ``traceEvents``, ``displayTimeUnit`` and ``otherData`` (the
    trial); times in microseconds since the first event on each machine."""
    placed = list[PlacedSpan]()
    events = list[Event]()
    starts = dict[str, float]()
    for rank in ranks:
        begin = min((span.begin for span in rank.spans), default=math.inf)
        starts[rank.clock] = min(begin, starts.get(rank.clock, math.inf))
    for number, rank in enumerate(ranks):
        lanes = assign_threads(rank.spans, starts[rank.clock])
        events += metadata_events(number, list(lanes))
        for thread, spans in enumerate(lanes.values()):
            placed += [PlacedSpan(number, thread, *each) for each in spans]
    about = {"experiment": run.meta.get("name"), "plan_hash": run.meta.get("plan_hash")}
    about |= {"arm": trial.arm, "backend": trial.backend, "seed": trial.seed}
    return {
        "traceEvents": [*events, *map(complete_event, placed), *flow_events(placed, ranks)],
        "displayTimeUnit": "ms",
        "otherData": about,
    }


def assign_threads(
    spans: Sequence[TraceSpan], start: float
) -> dict[str, list[tuple[int, int, TraceSpan]]]:
    """Return thread → (begin, end, span) in nanoseconds since ``start``. Spans of a thread lie side
    by side or nested, as the format requires; one that overlaps others moves to a thread of its own
    kind such as ``communication 2``. Spans without length are left out."""
    timed = [(round((s.begin - start) * 1e9), round((s.end - start) * 1e9), s) for s in spans]
    lanes = dict[str, list[tuple[int, int, TraceSpan]]]()
    open_ends = dict[str, list[int]]()
    for begin, end, span in sorted(timed, key=lambda t: (THREADS.index(t[2].thread), t[0], -t[1])):
        if begin == end:
            continue
        name, number = span.thread, 1
        while not fits_inside(open_ends.setdefault(name, []), begin, end):
            number += 1
            name = f"{span.thread} {number}"
        open_ends[name].append(end)
        lanes.setdefault(name, []).append((begin, end, span))
    return lanes


def fits_inside(ends: list[int], begin: int, end: int) -> bool:
    """Return whether a span is nested in those that are open when it begins, or none is; closed
    ones are removed from ``ends``."""
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or end <= ends[-1]


def metadata_events(rank: int, lanes: Sequence[str]) -> Iterator[Event]:
    """Yield the events that name and order the rank and its threads."""

    def metadata_event(what: str, thread: int, **value: Any) -> Event:
        return {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": value}

    yield metadata_event("process_name", 0, name=f"rank {rank}")
    yield metadata_event("process_sort_index", 0, sort_index=rank)
    for thread, name in enumerate(lanes):
        yield metadata_event("thread_name", thread, name=name)
        yield metadata_event("thread_sort_index", thread, sort_index=thread)


def complete_event(it: PlacedSpan) -> Event:
    """Return the complete event (``"ph": "X"``) of a span, with its times in µs."""
    return {
        "name": it.span.name,
        "cat": it.span.thread,
        "ph": "X",
        "pid": it.rank,
        "tid": it.thread,
        "ts": it.begin / 1e3,
        "dur": (it.end - it.begin) / 1e3,
        "args": it.span.args,
    }


def flow_events(placed: Sequence[PlacedSpan], ranks: Sequence[RankTrace]) -> Iterator[Event]:
    """Yield the two events of an arrow from each send to its receive, between ranks with the same
    clock; sends without a receive, and those that begin after it ended, have none."""
    sent = {it.span.sends: it for it in placed if it.span.sends is not None}
    number = 0
    for to in placed:
        source = None if to.span.receives is None else sent.get(to.span.receives)
        if source is None or ranks[source.rank].clock != ranks[to.rank].clock:
            continue
        # An arrow must not go back in time: if the receiver waited, it ends where the send begins.
        at = max(source.begin, to.begin)
        if at < to.end:
            number += 1
            for it, when, ends in (
                (source, source.begin, {"ph": "s"}),
                (to, at, {"ph": "f", "bp": "e"}),
            ):
                yield {
                    "name": "message",
                    "cat": "message",
                    "id": number,
                    "pid": it.rank,
                    "tid": it.thread,
                    "ts": when / 1e3,
                    **ends,
                }
