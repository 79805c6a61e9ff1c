"""Best learning rate per optimizer and the effect of the batch size, where arms vary them."""

from __future__ import annotations

from dualml.report import numbers
from dualml.report.analysis.base import Finding, Notes
from dualml.report.model import Run
from dualml.report.sweeps import Sweep, measure, sweeps, value
from dualml.report.words import Words


def sweep(run: Run, words: Words) -> list[Finding]:
    notes = Notes(words, "sweep")
    found = [s for group, arms in run.groups().items() for s in sweeps(run, group, arms)]
    rates = [s for s in found if s.what == "lr"]
    sizes = [s for s in found if s.what == "batch_size" and s.group != "main"]
    for s in rates:
        _rate(notes, run, words, s)
    for s in sizes:
        _size(notes, run, words, s)
    if not rates:
        notes.warn("no_rates")
    if not sizes:
        notes.warn("no_sizes")
    return notes


def mean(run: Run, arm: str, quantity: str, backend: str | None = None) -> float | None:
    return numbers.mean([measure(run, t, quantity) for t in run.select(arm, backend)])


def best_rate(run: Run, s: Sweep, backend: str) -> float | None:
    """Learning rate with the lowest mean final loss."""
    losses = {v: mean(run, arm, "final_loss", backend) for v, arm in s.arms.items()}
    known = {v: loss for v, loss in losses.items() if loss is not None}
    return min(known, key=lambda v: known[v]) if known else None


def _rate(notes: Notes, run: Run, words: Words, s: Sweep) -> None:
    chosen: dict[float, list[str]] = {}
    for backend in run.backends:
        best = best_rate(run, s, backend)
        if best is not None:
            chosen.setdefault(best, []).append(backend)
    values = words.join([f"{v:g}" for v in s.arms])
    for rate, backends in chosen.items():
        arm = s.arms[rate]
        losses = [mean(run, arm, "final_loss", b) for b in backends]
        accuracies = [mean(run, arm, "test_accuracy", b) for b in backends]
        notes.say(
            "best",
            optimizer=s.optimizer,
            rate=f"{rate:g}",
            values=values,
            backends=words.join(backends),
            loss=numbers.loss(numbers.mean(losses)),
            accuracy=numbers.percent(numbers.mean(accuracies)),
        )
        if rate in (min(s.arms), max(s.arms)):
            notes.warn("edge", optimizer=s.optimizer, rate=f"{rate:g}")
    if len(chosen) > 1:
        notes.warn("disagree", optimizer=s.optimizer)
    for tried, arm in s.arms.items():
        bad = [t for t in run.select(arm, ok=False) if not t.ok]
        if bad:
            notes.say(
                "failed",
                len(bad),
                n=len(bad),
                optimizer=s.optimizer,
                rate=f"{tried:g}",
                backends=words.join(sorted({t.backend for t in bad})),
            )


def _size(notes: Notes, run: Run, words: Words, s: Sweep) -> None:
    """The smallest batch against the largest, per backend."""
    small, large = min(s.arms), max(s.arms)
    for what, key in (("lr", "rates"), ("epochs", "passes")):
        values = [f"{v:g}" for arm in s.arms.values() if (v := value(run, arm, what)) is not None]
        if len(set(values)) > 1:
            notes.warn(key, optimizer=s.optimizer, values=words.join(values))
    for backend in run.backends:
        got = [
            mean(run, s.arms[size], q, backend)
            for q in ("test_accuracy", "epoch_seconds")
            for size in (small, large)
        ]
        if any(v is None for v in got):
            notes.warn("size_gap", optimizer=s.optimizer, backend=backend)
            continue
        notes.say(
            "size",
            optimizer=s.optimizer,
            backend=backend,
            small=numbers.quantity(small),
            large=numbers.quantity(large),
            small_accuracy=numbers.percent(got[0]),
            large_accuracy=numbers.percent(got[1]),
            small_seconds=words.count("second", got[2] or 0.0),
            large_seconds=words.count("second", got[3] or 0.0),
        )
