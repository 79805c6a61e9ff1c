"""Groups of arms that vary one hyperparameter: the best learning rate, what the batch size does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from dualml.report import keys, ranks
from dualml.report.blocks import Block, Item
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.learning import MOST, learning
from dualml.report.measures import alone, epoch_seconds, loss_unit, slug
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


@dataclass(frozen=True)
class Sweep:
    """Arms of one optimizer that differ in ``what`` (``lr`` or ``batch_size``): value → arm."""

    group: str
    optimizer: str
    what: str
    arms: Mapping[float, str]


def sweeps(run: Run, group: str) -> list[Sweep]:
    """The sweeps inside a group: arms of an optimizer that differ in batch size (perhaps also in
    rate and epochs, which the sentences tell), or in the rate and nothing else."""
    rules: dict[str, list[str]] = {}
    for arm in run.groups()[group]:
        rules.setdefault(str(_rule(run, arm).get("name")), []).append(arm)
    out = []
    for optimizer, arms in rules.items():
        for what in ("batch_size", "lr"):  # a larger batch often gets a larger rate
            values = {v: arm for arm in arms if (v := value(run, arm, what)) is not None}
            alike = run.contrast.groups(arms, vary=["optimizer.lr"])
            if len(values) == len(arms) > 1 and (what == "batch_size" or len(alike) == 1):
                out.append(Sweep(group, optimizer, what, dict(sorted(values.items()))))
                break
    return out


def _rule(run: Run, arm: str) -> Mapping[str, Any]:
    return run.arms[arm].get("optimizer") or {}


def value(run: Run, arm: str, what: str) -> float | None:
    """``lr``, ``batch_size`` (the full batch as the number of its samples) or ``epochs``."""
    settings = run.arms[arm]
    if what == "lr":
        number = _rule(run, arm).get("lr")
    elif what == "batch_size":
        number = settings.get("batch_size") or settings.get("samples") or run.train_size
    else:
        number = settings.get(what)
    return float(number) if numbers.known(number) else None


def measure(run: Run, trial: Trial, quantity: str) -> float | None:
    """``final_loss``, ``test_accuracy`` or ``epoch_seconds`` of a trial."""
    if quantity == "epoch_seconds":
        return epoch_seconds(run, trial)
    number = getattr(trial, quantity)
    return float(number) if numbers.known(number) else None


def mean(run: Run, arm: str, quantity: str, backend: str | None = None) -> float | None:
    return numbers.mean([measure(run, t, quantity) for t in run.select(arm, backend)])


# --- figures --------------------------------------------------------------------------------------


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Of groups of one rank: what varies against what came of it, and the curves."""
    for group, arms in run.groups().items():
        trained = any(t.curves for t in run.trials if t.arm in arms)
        if not trained or any(ranks.size(run, arm) > 1 for arm in arms):
            continue
        every = sweeps(run, group)
        for what in ("lr", "batch_size"):
            shown = [s for s in every if s.what == what]
            if shown:
                yield _figure(run, words, group, what, shown)
        main = set(arms) >= set(run.main_arms())
        if len(arms) <= MOST and not (main and alone(run)):
            yield learning(run, words, group, arms, "epochs")


def _figure(run: Run, words: Words, group: str, what: str, shown: Sequence[Sweep]) -> Figure:
    """All optimizers of a group together."""
    quantities = ("final_loss", "test_accuracy") + (("epoch_seconds",) if what != "lr" else ())
    x = Axis(words(f"axis.{what}") + words("axis.log"), "log")
    if what != "lr":
        sizes = sorted({v for s in shown for v in s.arms})
        x = replace(x, scale="log2", ticks=[(v, f"{v:g}") for v in sizes])
    panels = [
        Panel(
            [mark for sweep in shown for mark in _marks(run, sweep, quantity)],
            x,
            Axis(words(f"axis.{quantity}", unit=loss_unit(run)),
                 "linear" if quantity == "test_accuracy" else "auto"),
        )
        for quantity in quantities
    ]  # fmt: skip
    seeds = words.plural("figure.seeds", len(run.seeds), n=len(run.seeds))
    return Figure(
        f"{slug(group)}-{what.replace('_', '-')}",
        words.sentences([words(f"figure.sweep.{what}"), seeds]),
        words(f"alt.sweep.{what}", optimizers=words.join([s.optimizer for s in shown])),
        panels,
        [*_keys(run, shown), *keys.backends(run)],
        columns=len(panels),
    )


def _keys(run: Run, shown: Sequence[Sweep]) -> list[Key]:
    """An optimizer keeps the colour of its main arm."""
    colors = keys.colors(run)
    main = {str(_rule(run, arm).get("name")): colors[arm] for arm in run.main_arms()}
    spare = [c for c in CYCLE if c not in main.values()] or CYCLE
    return [
        Key("series", s.optimizer, color=main.get(s.optimizer, spare[k % len(spare)]))
        for k, s in enumerate(shown)
    ]


def _marks(run: Run, sweep: Sweep, quantity: str) -> Iterator[Mark]:
    """Means of the seeds, with bars from the least to the greatest."""
    scale = 100.0 if quantity == "test_accuracy" else 1.0
    for backend in run.backends:
        points: dict[float, list[float]] = {}
        for value, arm in sweep.arms.items():
            measured = [measure(run, t, quantity) for t in run.select(arm, backend)]
            known = [scale * v for v in measured if v is not None]
            if known:
                points[value] = known
        yield Line(
            list(points),
            [fmean(v) for v in points.values()],
            Owner(backend=backend, series=sweep.optimizer),
            low=[min(v) for v in points.values()],
            high=[max(v) for v in points.values()],
            bars="y",
            marker="circle",
        )


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "sweep")
    every = [s for group in run.groups() for s in sweeps(run, group)]
    rates = [s for s in every if s.what == "lr"]
    sizes = [s for s in every if s.what == "batch_size" and s.group != "main"]
    if not alone(run) or not (rates or sizes):
        return notes
    for s in rates:
        notes.about(f"figure-{slug(s.group)}-lr")
        _rate(notes, run, s)
    for s in sizes:
        notes.about(f"figure-{slug(s.group)}-batch-size")
        _size(notes, run, s)
    notes.about("")
    if not rates:
        notes.warn("no_rates")
    if not sizes:
        notes.warn("no_sizes")
    return notes


def best_rate(run: Run, s: Sweep, backend: str) -> float | None:
    """Learning rate with the lowest mean final loss."""
    losses = {v: mean(run, arm, "final_loss", backend) for v, arm in s.arms.items()}
    known = {v: loss for v, loss in losses.items() if loss is not None}
    return min(known, key=lambda v: known[v]) if known else None


def _rate(notes: Notes, run: Run, s: Sweep) -> None:
    words = notes.words
    chosen: dict[float, list[str]] = {}
    for backend in run.backends:
        best = best_rate(run, s, backend)
        if best is not None:
            chosen.setdefault(best, []).append(backend)
    values = words.join([f"{v:g}" for v in s.arms])
    for rate, backends in chosen.items():
        losses = [mean(run, s.arms[rate], "final_loss", b) for b in backends]
        accuracies = [mean(run, s.arms[rate], "test_accuracy", b) for b in backends]
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


def _size(notes: Notes, run: Run, s: Sweep) -> None:
    """The smallest batch against the largest, per backend."""
    words = notes.words
    small, large = min(s.arms), max(s.arms)
    for what, key in (("lr", "rates"), ("epochs", "passes")):
        values = [f"{v:g}" for arm in s.arms.values() if (v := value(run, arm, what)) is not None]
        if len(set(values)) > 1:
            notes.warn(key, optimizer=s.optimizer, values=words.join(values))
    for backend in run.backends:
        accuracies, seconds = (
            [mean(run, s.arms[size], quantity, backend) for size in (small, large)]
            for quantity in ("test_accuracy", "epoch_seconds")
        )
        if None in (*accuracies, *seconds):
            notes.warn("size_gap", optimizer=s.optimizer, backend=backend)
            continue
        notes.say(
            "size",
            optimizer=s.optimizer,
            backend=backend,
            small=numbers.quantity(small),
            large=numbers.quantity(large),
            small_accuracy=numbers.percent(accuracies[0]),
            large_accuracy=numbers.percent(accuracies[1]),
            small_seconds=words.count("second", seconds[0] or 0.0),
            large_seconds=words.count("second", seconds[1] or 0.0),
        )


TOPIC = Topic("sweep", 140, evidence, findings, leads=lambda run: 10 if alone(run) else 0)
