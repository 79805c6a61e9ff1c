"""Convergence: which optimizer reached the target accuracy first, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData, Trial
from dualml.report import curves, ranks
from dualml.report.blocks import Block
from dualml.report.columns import Columns, tabulate
from dualml.report.learning import MAX_ARMS_PER_FIGURE, learning_figure
from dualml.report.measures import trains_on_one_rank
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection

TARGET = 0.9
TARGET_TEXT = f"{100 * TARGET:g} %"
AXES = ("updates", "epochs", "seconds")


@dataclass(frozen=True)
class TargetHit:
    """The first evaluation at or above the target (`TARGET`), mean over the ``n`` (out of ``of``)
    seeds that reach it."""

    arm: str
    backend: str
    updates: float
    epochs: float
    seconds: float
    n: int
    of: int


def first_hit(trial: Trial) -> tuple[float, ...]:
    """Return updates, epochs and seconds at the first evaluation whose test accuracy reaches
    `TARGET`; an empty tuple if none does."""
    curve = trial.curves.get("test_accuracy")
    if curve is None or not (curve.value >= TARGET).any():
        return ()
    at = np.flatnonzero(curve.value >= TARGET)[0]
    return tuple(float(curves.axis_positions(trial, curve, axis)[at]) for axis in AXES)


def mean_hit(run: RunData, arm: str, backend: str) -> TargetHit | None:
    """Return when an arm reaches the target on a backend, as means over the seeds that reach it;
    None if none does."""
    trials = run.select(arm, backend)
    hits = [hit for t in trials if (hit := first_hit(t))]
    if not hits:
        return None
    updates, epochs, seconds = (float(v) for v in np.mean(hits, axis=0))
    return TargetHit(arm, backend, updates, epochs, seconds, len(hits), len(trials))


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the main arms' curves against epochs, updates and seconds, unless there are too many
    arms for one figure, and the table of the cost of the target, except for text."""
    arms = run.main_arms()
    if len(arms) <= MAX_ARMS_PER_FIGURE and any(t.curves for t in run.trials if t.arm in arms):
        group = run.arms[arms[0]].get("group") or "main"
        for axis in curves.AXES:
            yield learning_figure(run, words, group, arms, axis)
    read: Columns[tuple[str, str]] = {
        ("`arm`", "backend"): lambda place: place,
        ("updates:count", "epochs:epochs", "seconds:seconds", "seeds:count"): lambda place: (
            _hit_cells(mean_hit(run, *place), words)
        ),
    }
    if not run.text:  # no language model predicts the next word that often
        places = ranks.successful_places(run, arms)
        yield from tabulate(words, "reached", places, read, target=TARGET_TEXT)


def _hit_cells(hit: TargetHit | None, words: Messages) -> list[object]:
    """Return the cells of updates, epochs and seconds to the target and of the seeds that reach
    it; without a hit ``never`` as text and three times None."""
    if hit is None:
        return [words("value.never"), None, None, None]
    return [hit.updates, hit.epochs, hit.seconds, words("value.of", n=hit.n, of=hit.of)]


def findings(notes: Notes, run: RunData) -> None:
    """Add which arm reached the target accuracy first on each backend, which never did, and how
    exactly that is known; nothing of this for text. A warning if no main arm succeeded."""
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    if not arms:
        notes.add_warning("nothing")
        return
    every = {(arm, b): mean_hit(run, arm, b) for arm, b in ranks.successful_places(run, arms)}
    if run.text:  # no language model predicts the next word that often
        return
    for backend in run.backends:
        _add_winners(
            notes, backend, [hit for hit in every.values() if hit and hit.backend == backend]
        )
    if not any(every.values()):
        best = max((t for a in arms for t in run.select(a)), key=lambda t: t.test_accuracy or 0.0)
        notes.add("nobody", best=best, target=TARGET_TEXT)
        return
    for arm in arms:
        never = [b for (a, b), hit in every.items() if a == arm and hit is None]
        if never:
            _add_never_reached(notes, arm, never, [t for b in never for t in run.select(arm, b)])
        for hit in every.values():
            if hit is not None and hit.arm == arm and hit.n < hit.of:
                notes.add("some", hit.n, hit=hit, target=TARGET_TEXT)
    _add_resolution(notes, [t for arm in arms for t in run.select(arm)])
    if len(arms) == 1:
        notes.add_warning("alone", arm=arms[0])


def _add_winners(notes: Notes, backend: str, hits: Sequence[TargetHit]) -> None:
    """Add which arms needed the fewest updates, epochs and seconds; equal arms share the place."""
    if not hits:
        return
    least = {axis: min(float(getattr(hit, axis)) for hit in hits) for axis in AXES}
    arms = {
        axis: [hit.arm for hit in hits if np.isclose(getattr(hit, axis), least[axis], rtol=1e-9)]
        for axis in AXES
    }
    key = "first" if len(hits) > 1 else "only"
    if len(arms["updates"]) > 1 or any(names != arms["updates"] for names in arms.values()):
        key = "split"
    notes.add(key, backend=backend, arms=arms, least=least, target=TARGET_TEXT)


def _add_never_reached(
    notes: Notes, arm: str, backends: Sequence[str], trials: Sequence[Trial]
) -> None:
    """Add that an arm never reached the target on these backends, with its best test accuracy."""
    tops = [t.curves["test_accuracy"].value for t in trials if "test_accuracy" in t.curves]
    best = max((float(np.nanmax(v)) for v in tops if np.isfinite(v).any()), default=None)
    notes.add("never", arm=arm, backends=backends, best=best, target=TARGET_TEXT)


def _add_resolution(notes: Notes, trials: Sequence[Trial]) -> None:
    """Add how coarse the evaluations were: the accuracy is only known at them."""
    gaps = []
    for trial in trials:
        if hit := first_hit(trial):
            steps = trial.curves["test_accuracy"].step
            at = int(np.flatnonzero(steps == hit[0])[0])
            gaps += [float(steps[at] - steps[at - 1])] if at else []
    if gaps:
        notes.add("resolution", gap=max(gaps))


TOPIC = ReportSection(
    "convergence",
    100,
    evidence,
    findings,
    "table-reached",
    priority=lambda run: 50,
    when=trains_on_one_rank,
)
