"""Which optimizer reached the target accuracy first, and what it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.report import curves
from dualml.report.blocks import Block, Item, Table
from dualml.report.columns import columns
from dualml.report.learning import MOST, learning
from dualml.report.measures import alone
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

TARGET = 0.9
AXES = ("updates", "epochs", "seconds")


@dataclass(frozen=True)
class Reached:
    """First evaluation at or above the target, mean over the seeds that got there."""

    arm: str
    backend: str
    updates: float
    epochs: float
    seconds: float
    seeds: int
    of: int


def first(trial: Trial, target: float = TARGET) -> tuple[float, ...]:
    """Updates, epochs and seconds at the first evaluation with that test accuracy, or nothing."""
    curve = trial.curves.get("test_accuracy")
    if curve is None or not (curve.value >= target).any():
        return ()
    hits = np.flatnonzero(curve.value >= target)
    return tuple(float(curves.position(trial, curve, axis)[hits[0]]) for axis in AXES)


def reached(run: Run, arm: str, backend: str) -> Reached | None:
    trials = run.select(arm, backend)
    hits = [hit for t in trials if (hit := first(t))]
    if not hits:
        return None
    updates, epochs, seconds = (float(v) for v in np.mean(hits, axis=0))
    return Reached(arm, backend, updates, epochs, seconds, len(hits), len(trials))


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """The main arms' curves against epochs, updates and seconds, and what the target took."""
    if not alone(run):
        return
    arms = run.main_arms()
    if len(arms) <= MOST and any(t.curves for t in run.trials if t.arm in arms):
        group = run.arms[arms[0]].get("group") or "main"
        for axis in curves.AXES:
            yield learning(run, words, group, arms, axis)
    if not run.text:  # of the next word nobody is right that often
        rows = [_row(run, words, a, b) for a in arms for b in run.backends if run.select(a, b)]
        shown = columns(words, "`arm`", "backend", "updates:count", "epochs:epochs",
                        "seconds:seconds", "seeds:count")  # fmt: skip
        caption = words("table.reached", target=f"{100 * TARGET:g} %")
        yield from [Table("reached", caption, shown, rows)] if rows else []


def _row(run: Run, words: Words, arm: str, backend: str) -> list[str]:
    hit = reached(run, arm, backend)
    if hit is None:
        return [arm, backend, words("value.never"), *[numbers.NONE] * 3]
    taken = map(numbers.quantity, (hit.updates, hit.epochs, hit.seconds))
    return [arm, backend, *taken, words("value.of", n=hit.seeds, of=hit.of)]


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "convergence", "table-reached")
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    if not alone(run):
        return notes
    if not arms:
        notes.warn("nothing")
        return notes
    target = f"{100 * TARGET:g} %"
    every = {
        (arm, backend): reached(run, arm, backend)
        for arm in arms
        for backend in run.backends
        if run.select(arm, backend)
    }
    for backend in run.backends:
        hits = [r for (_, b), r in every.items() if r is not None and b == backend]
        if hits:
            _winners(notes, backend, hits, target, words)
    if not any(every.values()):
        best = max((t for a in arms for t in run.select(a)), key=lambda t: t.test_accuracy or 0.0)
        notes.say(
            "nobody",
            target=target,
            arm=best.arm,
            backend=best.backend,
            seed=best.seed,
            best=numbers.percent(best.test_accuracy),
        )
        return notes
    for arm in arms:
        _missed(notes, run, arm, {b: r for (a, b), r in every.items() if a == arm}, target)
    _resolution(notes, run, arms)
    if len(arms) == 1:
        notes.warn("alone", arm=arms[0])
    return notes


def _winners(
    notes: Notes, backend: str, hits: Sequence[Reached], target: str, words: Words
) -> None:
    """Who needed least by each measure; arms that needed the same share the place."""
    least = {axis: min(float(getattr(r, axis)) for r in hits) for axis in AXES}
    winners = {
        axis: [r.arm for r in hits if np.isclose(getattr(r, axis), least[axis], rtol=1e-9)]
        for axis in AXES
    }
    amounts = {
        "updates": words.count("update", least["updates"]),
        "epochs": words.count("epoch", least["epochs"]),
        "seconds": words.count("second", least["seconds"]),
    }
    best = winners["updates"]
    if len(best) == 1 and all(arms == best for arms in winners.values()):
        key = "first" if len(hits) > 1 else "only"
        notes.say(key, arm=best[0], backend=backend, target=target, **amounts)
    else:
        arms = {f"{axis}_arm": words.join(names) for axis, names in winners.items()}
        notes.say("split", backend=backend, target=target, **arms, **amounts)


def _missed(
    notes: Notes, run: Run, arm: str, by_backend: dict[str, Reached | None], target: str
) -> None:
    words = notes.words
    never = [b for b, r in by_backend.items() if r is None]
    if never:
        tops = [
            t.curves["test_accuracy"].value
            for b in never
            for t in run.select(arm, b)
            if "test_accuracy" in t.curves
        ]
        top = max((float(np.nanmax(v)) for v in tops if np.isfinite(v).any()), default=None)
        notes.say(
            "never", arm=arm, backends=words.join(never), target=target, best=numbers.percent(top)
        )
    for backend, r in by_backend.items():
        if r is not None and r.seeds < r.of:
            notes.say("some", r.seeds, arm=arm, backend=backend, n=r.seeds, of=r.of, target=target)


def _resolution(notes: Notes, run: Run, arms: Sequence[str]) -> None:
    """Accuracy is only known where it was measured: how coarse that was at the hit."""
    gaps = []
    for arm in arms:
        for trial in run.select(arm):
            hit, curve = first(trial), trial.curves.get("test_accuracy")
            if hit and curve is not None:
                at = int(np.flatnonzero(curve.step == hit[0])[0])
                if at:
                    gaps.append(float(curve.step[at] - curve.step[at - 1]))
    if gaps:
        notes.say("resolution", gap=notes.words.count("update", max(gaps)))


TOPIC = Topic("convergence", 100, evidence, findings, leads=lambda run: 50 if alone(run) else 0)
