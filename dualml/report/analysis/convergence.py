"""Which optimizer reached the target accuracy first, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.report import curves, numbers
from dualml.report.analysis.base import Finding, Notes, ran
from dualml.report.model import Run, Trial
from dualml.report.words import Words

TARGET = 0.9


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


def first(trial: Trial, target: float = TARGET) -> tuple[float, float, float] | None:
    """Updates, epochs and seconds at the first evaluation with that test accuracy, or None."""
    curve = trial.curves.get("test_accuracy")
    if curve is None:
        return None
    hits = np.flatnonzero(curve.value >= target)
    if not len(hits):
        return None
    return tuple(float(curves.position(trial, curve, axis)[hits[0]]) for axis in _AXES)  # type: ignore[return-value]


_AXES = ("updates", "epochs", "seconds")


def reached(run: Run, arm: str, backend: str, target: float = TARGET) -> Reached | None:
    trials = run.select(arm, backend)
    hits = [hit for hit in (first(t, target) for t in trials) if hit is not None]
    if not hits:
        return None
    updates, epochs, seconds = np.mean(hits, axis=0)
    return Reached(
        arm, backend, float(updates), float(epochs), float(seconds), len(hits), len(trials)
    )


def convergence(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "convergence")
    arms = ran(run, run.main_arms())
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
        _missed(notes, run, arm, every, target, words)
    _resolution(notes, run, arms, words)
    if len(arms) == 1:
        notes.warn("alone", arm=arms[0])
    return notes


def _winners(notes: Notes, backend: str, hits: list[Reached], target: str, words: Words) -> None:
    """Who needed least by each measure; arms that needed the same share the place."""
    least = {axis: min(float(getattr(r, axis)) for r in hits) for axis in _AXES}
    first = {
        axis: [r.arm for r in hits if np.isclose(getattr(r, axis), least[axis], rtol=1e-9)]
        for axis in _AXES
    }
    amounts = {
        "updates": words.count("update", least["updates"]),
        "epochs": words.count("epoch", least["epochs"]),
        "seconds": words.count("second", least["seconds"]),
    }
    winners = first["updates"]
    if len(winners) == 1 and all(arms == winners for arms in first.values()):
        key = "first" if len(hits) > 1 else "only"
        notes.say(key, arm=winners[0], backend=backend, target=target, **amounts)
    else:
        arms = {f"{axis}_arm": words.join(names) for axis, names in first.items()}
        notes.say("split", backend=backend, target=target, **arms, **amounts)


def _missed(
    notes: Notes,
    run: Run,
    arm: str,
    every: dict[tuple[str, str], Reached | None],
    target: str,
    words: Words,
) -> None:
    mine = {b: r for (a, b), r in every.items() if a == arm}
    never = [b for b, r in mine.items() if r is None]
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
    for backend, r in mine.items():
        if r is not None and r.seeds < r.of:
            notes.say("some", r.seeds, arm=arm, backend=backend, n=r.seeds, of=r.of, target=target)


def _resolution(notes: Notes, run: Run, arms: list[str], words: Words) -> None:
    """Accuracy is only known where it was measured: say how coarse that was at the hit."""
    gaps = []
    for arm in arms:
        for trial in run.select(arm):
            hit, curve = first(trial), trial.curves.get("test_accuracy")
            if hit and curve is not None:
                at = int(np.flatnonzero(curve.step == hit[0])[0])
                if at:
                    gaps.append(float(curve.step[at] - curve.step[at - 1]))
    if gaps:
        notes.say("resolution", gap=words.count("update", max(gaps)))
