"""Hyperparameter sweeps: the best learning rate, and the effect of the batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend, ranks
from dualml.report.blocks import Block
from dualml.report.draw.palette import CYCLE
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.learning import MAX_ARMS_PER_FIGURE, learning_figure
from dualml.report.measures import drop_missing, epoch_seconds, loss_unit, slug, trains_on_one_rank
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection

#: Settings whose variation within a group this topic reports.
REPORTED_SETTINGS = ("optimizer", "schedule", "batch_size", "epochs", "updates", "chunk")


@dataclass(frozen=True)
class Sweep:
    """Arms of one optimizer that differ in ``what`` (``lr`` or ``batch_size``): value → arm."""

    group: str
    optimizer: str
    what: str
    arms: Mapping[float, str]

    @property
    def values(self) -> list[str]:
        """Values of the swept setting as text, ascending."""
        return [f"{value:g}" for value in self.arms]


def sweeps(run: RunData, group: str) -> list[Sweep]:
    """Return the sweeps of a group: all its arms of one optimizer if each has another batch size
    (they may differ in other settings, too; the sentences mention learning rate and epochs), else
    if they differ only in the learning rate."""
    rules: dict[str, list[str]] = {}
    for arm in run.groups()[group]:
        rules.setdefault(_rule(run, arm), []).append(arm)
    out = []
    for optimizer, arms in rules.items():
        for what in ("batch_size", "lr"):  # a larger batch often gets a larger rate
            values = {v: arm for arm in arms if (v := setting(run, arm, what)) is not None}
            alike = run.contrast.groups(arms, vary=["optimizer.lr"])
            if len(values) == len(arms) > 1 and (what == "batch_size" or len(alike) == 1):
                out.append(Sweep(group, optimizer, what, dict(sorted(values.items()))))
                break
    return out


def _rule(run: RunData, arm: str) -> str:
    """Return the name of an arm's optimizer."""
    return str((run.arms[arm].get("optimizer") or {}).get("name"))


def setting(run: RunData, arm: str, what: str) -> float | None:
    """Return ``lr``, ``batch_size`` (a full batch as its number of samples) or ``epochs`` of an
    arm, None if unknown."""
    given = run.arms[arm]
    value = ((given.get("optimizer") or {}) if what == "lr" else given).get(what)
    if what == "batch_size":
        value = value or given.get("samples") or run.train_size
    return float(value) if numbers.is_finite_number(value) else None


def trial_values(run: RunData, arm: str, backend: str, quantity: str) -> list[float]:
    """Return ``final_loss``, ``test_accuracy`` or ``epoch_seconds`` (``quantity``) of every
    successful trial of an arm on a backend that has it."""
    known = epoch_seconds if quantity == "epoch_seconds" else lambda _, t: getattr(t, quantity)
    return [
        float(v) for t in run.select(arm, backend) if numbers.is_finite_number(v := known(run, t))
    ]


def mean_value(run: RunData, arm: str, backend: str, quantity: str) -> float | None:
    """Return the mean of a quantity of `trial_values` over the trials, None if no trial has it."""
    return numbers.mean([*trial_values(run, arm, backend, quantity)])


# --- figures --------------------------------------------------------------------------------------


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield, for groups of single-rank arms with curves, a figure of results against each swept
    setting, and the learning curves, unless there are too many arms or another topic shows them.
    Groups other than the main one that vary none of `REPORTED_SETTINGS` are left out."""
    for group, arms in run.groups().items():
        trained = any(t.curves for t in run.trials if t.arm in arms)
        if not trained or any(ranks.world_size(run, arm) > 1 for arm in arms):
            continue
        main = set(arms) >= set(run.main_arms())
        among = [*run.main_arms()[:1], *arms]
        if not main and not any(
            v.startswith(REPORTED_SETTINGS) for v in run.contrast.varying_keys(among)
        ):
            continue  # arms that learn the same at different cost
        every = sweeps(run, group)
        for what in ("lr", "batch_size"):
            shown = [s for s in every if s.what == what]
            if shown:
                yield _figure(run, words, group, what, shown)
        if len(arms) <= MAX_ARMS_PER_FIGURE and not (main and trains_on_one_rank(run)):
            yield learning_figure(run, words, group, arms, "epochs")


def _figure(run: RunData, words: Messages, group: str, what: str, shown: Sequence[Sweep]) -> Figure:
    """Return a figure of the results of all optimizers of a group against the swept setting
    ``what``: final loss and test accuracy, for batch sizes also the seconds of an epoch."""
    quantities = ("final_loss", "test_accuracy") + (("epoch_seconds",) if what != "lr" else ())
    x = Axis(words(f"axis.{what}") + words("axis.log"), "log")
    if what != "lr":
        sizes = sorted({v for s in shown for v in s.arms})
        x = replace(x, scale="log2", ticks=[(v, f"{v:g}") for v in sizes])
    panels = [
        Panel(
            [mark for sweep in shown for mark in _marks(run, sweep, quantity)],
            x,
            Axis(
                words(f"axis.{quantity}", unit=loss_unit(run)),
                "linear" if quantity == "test_accuracy" else "auto",
            ),
        )
        for quantity in quantities
    ]
    seeds = words.plural("figure.seeds", len(run.seeds), n=len(run.seeds))
    # An optimizer keeps the colour of its main arm.
    colors = legend.colors(run)
    main = {_rule(run, arm): colors[arm] for arm in run.main_arms()}
    spare = [c for c in CYCLE if c not in main.values()] or CYCLE
    optimizers = [
        LegendEntry("series", s.optimizer, color=main.get(s.optimizer, spare[k % len(spare)]))
        for k, s in enumerate(shown)
    ]
    return Figure(
        f"{slug(group)}-{what.replace('_', '-')}",
        words.join_sentences([words(f"figure.sweep.{what}"), seeds]),
        words(f"alt.sweep.{what}", optimizers=[s.optimizer for s in shown]),
        panels,
        [*optimizers, *legend.backends(run)],
        columns=len(panels),
    )


def _marks(run: RunData, sweep: Sweep, quantity: str) -> Iterator[Mark]:
    """Yield a line per backend of the means of a quantity of `trial_values` over the seeds against
    the swept setting, with bars from minimum to maximum; accuracies in percent."""
    scale = 100.0 if quantity == "test_accuracy" else 1.0
    for backend in run.backends:
        values = {
            value: [scale * v for v in trial_values(run, arm, backend, quantity)]
            for value, arm in sweep.arms.items()
        }
        points = {value: each for value, each in values.items() if each}
        mid, low, high = ([of(each) for each in points.values()] for of in (fmean, min, max))
        owner = SeriesId(backend=backend, series=sweep.optimizer)
        yield LineMark([*points], mid, owner, low, high, "y", marker="circle")


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the best learning rate of each sweep and the effect of the batch size, with a warning
    if one of the two was not swept; nothing if neither was, and for several ranks."""
    every = [s for group in run.groups() for s in sweeps(run, group)]
    rates = [s for s in every if s.what == "lr"]
    sizes = [s for s in every if s.what == "batch_size" and s.group != "main"]
    if not trains_on_one_rank(run) or not (rates or sizes):
        return
    for s in rates:
        notes.set_anchor(f"figure-{slug(s.group)}-lr")
        _add_best_rate(notes, run, s)
    for s in sizes:
        notes.set_anchor(f"figure-{slug(s.group)}-batch-size")
        _add_batch_sizes(notes, run, s)
    notes.set_anchor("")
    if not rates:
        notes.add_warning("no_rates")
    if not sizes:
        notes.add_warning("no_sizes")


def _add_best_rate(notes: Notes, run: RunData, s: Sweep) -> None:
    """Add the learning rate with the lowest mean final loss, per backend."""
    chosen: dict[float, list[str]] = {}
    for backend in run.backends:
        losses = drop_missing(
            {v: mean_value(run, arm, backend, "final_loss") for v, arm in s.arms.items()}
        )
        if losses:
            chosen.setdefault(min(losses, key=lambda rate: losses[rate]), []).append(backend)
    for rate, backends in chosen.items():
        loss, accuracy = (
            numbers.mean([mean_value(run, s.arms[rate], b, quantity) for b in backends])
            for quantity in ("final_loss", "test_accuracy")
        )
        notes.add("best", s=s, rate=rate, backends=backends, loss=loss, accuracy=accuracy)
        if rate in (min(s.arms), max(s.arms)):
            notes.add_warning("edge", s=s, rate=rate)
    if len(chosen) > 1:
        notes.add_warning("disagree", s=s)
    for rate, arm in s.arms.items():
        bad = [t.backend for t in run.select(arm, ok=False) if not t.ok]
        if bad:
            notes.add("failed", len(bad), n=len(bad), s=s, rate=rate, backends=sorted({*bad}))


def _add_batch_sizes(notes: Notes, run: RunData, s: Sweep) -> None:
    """Add the smallest batch compared with the largest, per backend."""
    ends = (min(s.arms), max(s.arms))
    for what, key in (("lr", "rates"), ("epochs", "passes")):
        values = [f"{v:g}" for a in s.arms.values() if (v := setting(run, a, what)) is not None]
        if len(set(values)) > 1:
            notes.add_warning(key, s=s, values=values)
    for backend in run.backends:
        accuracies, seconds = (
            [mean_value(run, s.arms[size], backend, quantity) for size in ends]
            for quantity in ("test_accuracy", "epoch_seconds")
        )
        if None in (*accuracies, *seconds):
            notes.add_warning("size_gap", s=s, backend=backend)
        else:
            notes.add("size", s=s, backend=backend, batch=ends, accuracy=accuracies, time=seconds)


TOPIC = ReportSection(
    "sweep", 140, evidence, findings, priority=lambda run: 10 if trains_on_one_rank(run) else 0
)
