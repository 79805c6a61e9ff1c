"""Memory of pipelines: micro-batches between forward and backward pass, their bytes, parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from dualml.common.errors import UserError
from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.parallel.split.schedules import SCHEDULES, live_bound
from dualml.report.blocks import Block
from dualml.report.columns import table
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Figure, Panel
from dualml.report.notes import Notes
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.topics import ReportSection
from dualml.report.topics.bubble import (
    legend_entries,
    micro_batch_axis,
    micro_batch_groups,
    micro_batch_lines,
)


def by_rank(run: RunData, arm: str, backend: str, key: str) -> list[float]:
    """Return for each rank, in order, the largest value of ``key``, e.g. ``live`` or
    ``held_bytes``, over the seeds, 0 where it was not recorded; empty if no memory was recorded."""
    seeds = [t.memory for t in run.select(arm, backend) if t.memory]
    size = min(map(len, seeds), default=0)
    return [max(float(ranks[r].get(key) or 0.0) for ranks in seeds) for r in range(size)]


def live_bounds(arm: SplitArm) -> list[int]:
    """Return for each rank, in order, the most micro-batches that the schedule lets it hold between
    forward and backward pass; empty without a schedule of `SCHEDULES`."""
    plan = arm.plan
    if not arm.is_pipelined or arm.schedule not in SCHEDULES or not plan.get("place"):
        return []
    place, m = list(plan["place"]), arm.micro_batches
    try:
        return [live_bound(arm.schedule, place, m, r["pipeline"]) for r in plan["ranks"]]
    except (UserError, KeyError):
        return []


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a figure per group of arms and the table of live micro-batches, activation and
    parameter bytes of every rank."""
    splits = Splits(run)
    for number, group in enumerate(micro_batch_groups(splits), start=1):
        yield from _figure(splits, group, f"held-{number}" if number > 1 else "held", words)
    head = (
        "`arm`",
        "backend",
        "live_bound:per_each_rank",
        "live:per_each_rank",
        "held:per_each_rank",
        "parameters:per_each_rank",
        "data_read:per_each_rank",
        "peak:memory_ranks",
    )
    rows = [row for arm in splits for b in run.backends if (row := _row(run, arm, b))]
    yield from table(words, "memory", head, rows)


def _row(run: RunData, arm: SplitArm, backend: str) -> list[str]:
    """Return the table row of an arm on a backend, with the values of all ranks in each cell; empty
    if nothing was recorded."""
    live, held, own, peak, samples, labels = (
        by_rank(run, arm.name, backend, key)
        for key in (
            "live",
            "held_bytes",
            "parameter_bytes",
            "peak_memory_mb",
            "sample_bytes",
            "label_bytes",
        )
    )
    data = [x + y for x, y in zip(samples, labels, strict=True)]
    if not any((*live, *held, *own, *peak)):
        return []
    known = any(live)
    return [
        arm.name,
        backend,
        _join_ranks(map(str, live_bounds(arm))),
        _join_ranks(f"{x:g}" for x in live if known),
        _join_ranks(numbers.nbytes(x) for x in held if known),
        _join_ranks(map(numbers.nbytes, own)),
        _join_ranks(numbers.nbytes(x) for x in data if any(data)),
        _join_ranks(numbers.factor(x) for x in peak if x),
    ]


def _join_ranks(texts: Iterable[str]) -> str:
    """Join texts per rank: ``a · b``; ``2 × a`` if neighbours are equal."""
    alike = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
    return " · ".join(f"{n} × {t}" if n > 1 else t for t, n in alike) or numbers.NO_VALUE


def _figure(
    splits: Splits, group: Sequence[SplitArm], name: str, words: Messages
) -> Iterator[Figure]:
    """Yield a figure of the first rank's activations against the number of micro-batches."""
    run, backends = splits.run, times.timed_backends(splits)

    def mebibytes(arm: SplitArm, backend: str) -> MeanInterval | None:
        held = first_rank_bytes(run, arm.name, backend)
        return MeanInterval(held / 2**20, None, None, 1) if held else None

    def nbytes(arm: str, backend: str) -> str:
        return numbers.nbytes(first_rank_bytes(run, arm, backend) or None)

    marks = micro_batch_lines(group, backends, mebibytes)
    if any(len(line.x) for line in marks):
        alt = words(
            "held.alt", values=times.format_values([arm.name for arm in group], backends, nbytes)
        )
        panel = Panel(marks, micro_batch_axis(group, words), Axis(words("axis.held"), low=0))
        yield Figure(
            name,
            words("held.figure", model=group[0].model),
            alt,
            [panel],
            legend_entries(group, backends, words),
            width=600,
        )


def first_rank_bytes(run: RunData, arm: str, backend: str) -> float:
    """Return the most bytes that rank 0 keeps for backward passes; 0 if unknown."""
    return next(iter(by_rank(run, arm, backend, "held_bytes")), 0.0)


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the activation bytes of the schedules, and whether any rank held more micro-batches
    than its schedule allows."""
    splits = Splits(run)
    for group in micro_batch_groups(splits):
        _schedules(notes, splits, group)
    notes.set_anchor("table-memory")
    # Check whether any rank held more micro-batches than its schedule allows.
    checked, over = 0, []
    for arm, backend in itertools.product(splits.pipelines, run.backends):
        live = by_rank(run, arm.name, backend, "live")
        for rank, (most, bound) in enumerate(zip(live, live_bounds(arm), strict=False)):
            checked += any(live)
            if most > bound:
                over.append(
                    {
                        "arm": arm.name,
                        "backend": backend,
                        "rank": rank,
                        "live": most,
                        "bound": bound,
                    }
                )
    if over:
        notes.add_warning("live_over", **over[0])
    elif checked:
        notes.add("live", n=checked)


def _schedules(notes: Notes, splits: Splits, group: Sequence[SplitArm]) -> None:
    """Add GPipe compared with 1F1B for the same number of micro-batches, on the first rank."""
    gpipe, one = (
        {arm.micro_batches: arm.name for arm in group if arm.schedule == schedule}
        for schedule in ("gpipe", "1f1b")
    )
    m = max(gpipe.keys() & one.keys(), default=0)
    parts = []
    for backend in times.timed_backends(splits) if m else ():
        a, b = (first_rank_bytes(splits.run, arms[m], backend) for arms in (gpipe, one))
        if b:
            parts.append(notes.format_part("item", backend=backend, gpipe=a, other=b, times=a / b))
    notes.add_joined("schedules", parts, m=m)


TOPIC = ReportSection(
    "held",
    630,
    evidence,
    findings,
    "figure-held",
    priority=lambda run: 45 if micro_batch_groups(Splits(run)) else 0,
)
