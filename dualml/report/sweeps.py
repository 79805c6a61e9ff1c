"""Groups of arms that vary one hyperparameter: found by comparing the arms, drawn against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.report import numbers, ranks, style
from dualml.report.model import Run, Trial
from dualml.report.style import Figure, Look, loss_unit, slug
from dualml.report.words import Words


@dataclass(frozen=True)
class Sweep:
    """Arms of one optimizer that differ in ``what`` (``lr`` or ``batch_size``): value → arm."""

    group: str
    optimizer: str
    what: str
    arms: Mapping[float, str]


def sweeps(run: Run, group: str, arms: Sequence[str]) -> list[Sweep]:
    """The sweeps inside a group: arms of an optimizer that differ in batch size (perhaps also in
    rate and epochs, which the analysis tells), or in the rate and nothing else."""
    rules: dict[str, list[str]] = {}
    for arm in arms:
        rules.setdefault(str(_rule(run, arm).get("name")), []).append(arm)
    found = []
    for optimizer, mine in rules.items():
        for what in ("batch_size", "lr"):  # a larger batch often gets a larger rate
            values = {v: arm for arm in mine if (v := value(run, arm, what)) is not None}
            alike = (
                what == "batch_size"
                or len({ranks.key(run, arm, "optimizer.lr") for arm in mine}) == 1
            )
            if len(values) == len(mine) > 1 and alike:
                found.append(Sweep(group, optimizer, what, dict(sorted(values.items()))))
                break
    return found


def _rule(run: Run, arm: str) -> Mapping[str, Any]:
    return run.arms[arm].get("optimizer") or {}


def value(run: Run, arm: str, what: str) -> float | None:
    """``lr``, ``batch_size`` (the full batch as the number of its samples) or ``epochs``."""
    settings = run.arms[arm]
    if what == "lr":
        found = _rule(run, arm).get("lr")
    elif what == "batch_size":
        found = settings.get("batch_size") or settings.get("samples") or run.train_size
    else:
        found = settings.get(what)
    return float(found) if numbers.known(found) else None


def epoch_seconds(run: Run, trial: Trial) -> float | None:
    """Training seconds per pass over the training set."""
    if not trial.train_s or not trial.sample_gradients or not run.train_size:
        return None
    return trial.train_s * run.train_size / trial.sample_gradients


def sweep_figures(
    run: Run, words: Words, look: Look, group: str, arms: Sequence[str]
) -> Iterator[Figure]:
    """One figure per hyperparameter varied in the group, all its optimizers together."""
    found = sweeps(run, group, arms)
    for what in ("lr", "batch_size"):
        mine = [s for s in found if s.what == what]
        if mine:
            yield _figure(run, words, look, group, what, mine)


def _figure(
    run: Run, words: Words, look: Look, group: str, what: str, found: Sequence[Sweep]
) -> Figure:
    name = f"{slug(group)}-{what.replace('_', '-')}"
    colors = _colors(run, look, found)
    quantities = ("final_loss", "test_accuracy") + (("epoch_seconds",) if what != "lr" else ())
    with style.canvas(style.WIDTH, 3.7) as made:
        grid = made.subplots(1, len(quantities), squeeze=False)[0]
        for axes, quantity in zip(grid, quantities, strict=True):
            seen: list[float] = []
            for sweep in found:
                for backend in look.order(run.backends):
                    seen += _draw(axes, run, look, sweep, backend, quantity, colors)
            axes.set_xscale("log", base=10 if what == "lr" else 2)
            if what != "lr":
                ticks = sorted({v for s in found for v in s.arms})
                axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
                axes.set_xticks([], minor=True)
            if quantity != "test_accuracy":
                style.log_if_wide(axes, seen)
            axes.set_xlabel(words(f"axis.{what}") + words("axis.log"))
            axes.set_ylabel(words(f"axis.{quantity}", unit=loss_unit(run)))
        look.legend(made, colors, run.backends)
        text = style.svg(made, name)
    optimizers = words.join([s.optimizer for s in found])
    seeds = words.plural("figure.seeds", len(run.seeds), n=len(run.seeds))
    caption = words.sentences([words(f"figure.sweep.{what}"), seeds])
    alt = words(f"alt.sweep.{what}", optimizers=optimizers)
    return Figure(name, text, caption, alt)


def _colors(run: Run, look: Look, found: Sequence[Sweep]) -> dict[str, str]:
    """An optimizer keeps the colour of its main arm."""
    main = {str(_rule(run, arm).get("name")): look.colors[arm] for arm in run.main_arms()}
    spare = [c for c in style.PALETTE if c not in main.values()] or list(style.PALETTE)
    return {s.optimizer: main.get(s.optimizer, spare[k % len(spare)]) for k, s in enumerate(found)}


def _draw(
    axes: Any,
    run: Run,
    look: Look,
    sweep: Sweep,
    backend: str,
    quantity: str,
    colors: Mapping[str, str],
) -> list[float]:
    points: list[tuple[float, float, float, float]] = []
    for value, arm in sweep.arms.items():
        got = [measure(run, t, quantity) for t in run.select(arm, backend)]
        kept = [v for v in got if v is not None]
        if kept:
            points.append((value, sum(kept) / len(kept), min(kept), max(kept)))
    if not points:
        return []
    scale = 100.0 if quantity == "test_accuracy" else 1.0
    x, mean, low, high = zip(*points, strict=True)
    look_of = look.line(sweep.arms[x[0]], backend, colors[sweep.optimizer])
    axes.plot(x, [m * scale for m in mean], marker="o", markersize=4.5, **look_of)
    if any(h > lo for h, lo in zip(high, low, strict=True)):
        axes.vlines(
            x,
            [v * scale for v in low],
            [v * scale for v in high],
            color=colors[sweep.optimizer],
            linewidth=1,
            alpha=0.5,
        )
    return [*low, *high]


def measure(run: Run, trial: Trial, quantity: str) -> float | None:
    """``final_loss``, ``test_accuracy`` or ``epoch_seconds`` of a trial."""
    if quantity == "epoch_seconds":
        return epoch_seconds(run, trial)
    value = getattr(trial, quantity)
    return float(value) if numbers.known(value) else None
