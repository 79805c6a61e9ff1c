"""What a larger batch costs with the same step, and whether one in proportion makes up for it."""

from __future__ import annotations

from dualml.parity.statistics import ENOUGH, LEVEL, MARGIN, equivalent
from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.batch import SAME, SCALED, WARM, Arm, Batches, accuracies, batches
from dualml.report.model import Run
from dualml.report.spread import interval, paired, spread
from dualml.report.sweeps import epoch_seconds
from dualml.report.words import Words


def batch(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "batch")
    for told in batches(run):
        for backend in run.backends:
            for arm in told.arms:
                if not (accuracies(run, arm, backend) and accuracies(run, told.base, backend)):
                    continue
                if arm.kind == SAME:
                    _cost(notes, run, words, told, arm, backend)
                elif arm.kind in (SCALED, WARM):
                    _recovery(notes, run, words, told, arm, backend)
            _epoch(notes, run, told, backend)
    return notes


def _points(x: float) -> str:
    """A difference of accuracies in percentage points."""
    sign = "+" if round(100 * x, 2) > 0 else "−" if round(100 * x, 2) < 0 else ""
    return f"{sign}{abs(100 * x):.2f}"


def _cost(notes: Notes, run: Run, words: Words, told: Batches, arm: Arm, backend: str) -> None:
    """The same step, as many epochs, fewer updates."""
    mine, base = (accuracies(run, a, backend) for a in (arm, told.base))
    gap = paired(mine, base, lambda a, b: a - b)
    if gap is None:
        return
    open_ = gap.low is not None and gap.high is not None and gap.low < 0 < gap.high
    updates, first = (_updates(run, a, backend) for a in (arm, told.base))
    losses = [numbers.mean([t.final_loss for t in run.select(a.name, backend)])
              for a in (arm, told.base)]  # fmt: skip
    ends = interval(gap, text=_points)
    notes.say(
        "cost_open" if open_ and gap.seeds >= ENOUGH else "cost",
        backend=backend,
        batch=numbers.quantity(arm.batch),
        base=numbers.quantity(told.base.batch),
        rate=f"{arm.rate:g}",
        updates=updates,
        base_updates=first,
        points=_points(gap.mean),
        interval=words("batch.interval" if gap.seeds >= ENOUGH else "batch.range", values=ends)
        if ends
        else "",
        loss=numbers.loss(losses[0]),
        base_loss=numbers.loss(losses[1]),
    )


def _updates(run: Run, arm: Arm, backend: str) -> str:
    return numbers.quantity(numbers.mean([t.updates for t in run.select(arm.name, backend)]))


def _recovery(notes: Notes, run: Run, words: Words, told: Batches, arm: Arm, backend: str) -> None:
    """Within a percentage point of the smallest batch, by two one-sided tests."""
    mine, base = (accuracies(run, a, backend) for a in (arm, told.base))
    seeds = sorted(mine.keys() & base.keys())
    here = {
        "backend": backend,
        "arm": arm.name,
        "batch": numbers.quantity(arm.batch),
        "base": numbers.quantity(told.base.batch),
        "rate": f"{arm.rate:g}",
        "warmup": _warmup(run, words, arm, backend),
    }
    if not seeds:
        return
    gap = sum(mine[s] - base[s] for s in seeds) / len(seeds)
    if len(seeds) < ENOUGH:
        notes.say("untested", len(seeds), **here, points=_points(gap), seeds=len(seeds))
        return
    found = equivalent([mine[s] for s in seeds], [base[s] for s in seeds])
    key = "recovered" if found["equivalent"] else "not_recovered"
    if found["high"] < -MARGIN:
        key = "lost"
    notes.say(
        key,
        **here,
        points=_points(gap),
        low=_points(found["low"]),
        high=_points(found["high"]),
        level=f"{100 * (1 - 2 * LEVEL):g}",
        margin=f"{100 * MARGIN:g}",
        seeds=len(seeds),
    )


def _warmup(run: Run, words: Words, arm: Arm, backend: str) -> str:
    if not arm.warmup:
        return ""
    made = numbers.mean([t.updates for t in run.select(arm.name, backend)])
    short = made is not None and made <= arm.warmup
    key = "batch.warming" if short else "batch.with_warmup"
    return words(key, n=words.count("update", arm.warmup))


def _epoch(notes: Notes, run: Run, told: Batches, backend: str) -> None:
    """What the larger batch buys: the time of an epoch."""
    largest = max(told.arms, key=lambda a: a.batch)
    times = [
        spread(epoch_seconds(run, t) for t in run.select(a.name, backend))
        for a in (largest, told.base)
    ]
    if times[0] and times[1] and times[0].mean:
        notes.say(
            "epoch",
            backend=backend,
            batch=numbers.quantity(largest.batch),
            base=numbers.quantity(told.base.batch),
            seconds=numbers.quantity(times[0].mean),
            base_seconds=numbers.quantity(times[1].mean),
            times=numbers.factor(times[1].mean / times[0].mean),
        )
