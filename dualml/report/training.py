"""Training on several ranks: loss curves by strategy, and where the time of an update goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualml.report import curves, ranks, style
from dualml.report.model import Run
from dualml.report.style import Figure, Look, loss_unit, slug
from dualml.report.words import Words

MOST_LINES = len(style.STRATEGIES)


def training_figures(run: Run, words: Words) -> Iterator[Figure]:
    """Curves of every group with ranks but those with a slow one, then the time of an update."""
    look = Look(run)
    healthy = []
    for group, arms in run.groups().items():
        whole = [a for a in arms if ranks.trains(run, a) and not ranks.split(run, a)]
        mine = [a for a in whole if run.select(a)]
        if not any(ranks.size(run, a) > 1 for a in mine) or _bottleneck(run, mine):
            continue
        healthy += [a for a in mine if ranks.size(run, a) > 1]
        if any(t.curves for a in mine for t in run.select(a)):
            yield _curves(run, words, look, group, [*_alone(run, mine), *mine])
    if any(ranks.parts(run, a, b) for a in healthy for b in run.backends):
        yield _shares(run, words, healthy)


def _alone(run: Run, arms: Sequence[str]) -> list[str]:
    """The arm with one rank that a group without one is held against."""
    if any(ranks.size(run, a) == 1 for a in arms):
        return []
    against = [s.against for s in run.serial if s.arm in arms and s.against in run.arms]
    return [a for a in dict.fromkeys(against) if run.select(a)]


def _bottleneck(run: Run, arms: Sequence[str]) -> bool:
    return any(ranks.slow(run, arm) for arm in arms)


def lines(run: Run, arms: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Arm → colour and label: by strategy where arms differ in nothing else, else by arm."""
    told = {a: ("#111111", a) for a in arms if ranks.size(run, a) == 1}
    palette = [c for c, _ in style.STRATEGIES.values()]
    with_ranks = [a for a in arms if ranks.size(run, a) > 1]
    kinds = {(ranks.strategy(run, a), ranks.size(run, a)) for a in with_ranks}
    plain = all(ranks.plain(run, a) for a in with_ranks) and len(kinds) == len(with_ranks)
    for k, a in enumerate(with_ranks):
        name = ranks.strategy(run, a)
        color = palette[k % MOST_LINES]
        told[a] = (style.STRATEGIES[name][0], name) if plain else (color, a)
    return told


def _curves(run: Run, words: Words, look: Look, group: str, arms: Sequence[str]) -> Figure:
    """A row for each number of ranks; the loss against updates and against seconds."""
    name = f"ranks-{slug(group)}"
    told = lines(run, arms)
    alone = [a for a in arms if ranks.size(run, a) == 1]
    sizes = sorted({ranks.size(run, a) for a in arms} - {1})
    timed = ranks.frameworks(run)
    with style.canvas(style.WIDTH, 0.9 + 2.9 * len(sizes)) as made:
        grid = made.subplots(len(sizes), 2, sharey=True, squeeze=False)
        for row, n in zip(grid, sizes, strict=True):
            shown = [*alone, *(a for a in arms if ranks.size(run, a) == n)]
            for axes, axis in zip(row, ("updates", "seconds"), strict=True):
                seen: list[float] = []
                for backend in look.order(timed if axis == "seconds" else run.backends):
                    for arm in shown:
                        seen += _draw(axes, run, look, arm, backend, told[arm][0], axis)
                style.log_if_wide(axes, seen)
                axes.set_xlim(left=0)
            row[0].set_title(words("figure.ranks", n=n))
            row[0].set_ylabel(words("axis.loss", unit=loss_unit(run)))
        for axes, axis in zip(grid[-1], ("updates", "seconds"), strict=True):
            axes.set_xlabel(words(f"axis.{axis}"))
        colors = {label: color for color, label in told.values()}
        look.legend(made, colors, run.backends, 4 if len(colors) > 5 else 5)
        text = style.svg(made, name)
    title = words("figure.training", group=words.either(f"group.{group}", group))
    black = [words("figure.one_rank")] if alone else []
    notes = [title, *black, words("figure.mean_line"), words("figure.interpolated")]
    alt = words("alt.training", title=title, finals=_finals(run, arms))
    return Figure(name, text, words.sentences(notes), alt)


def _draw(
    axes: Any, run: Run, look: Look, arm: str, backend: str, color: str, axis: str
) -> list[float]:
    line = curves.line(run.select(arm, backend), "loss", axis)
    if line is None:
        return []
    x, mean = curves.thin(line.x, line.mean)
    axes.plot(x, mean, **look.line(arm, backend, color))
    return [float(v) for v in mean]


def _finals(run: Run, arms: Sequence[str]) -> str:
    from dualml.report import numbers

    parts = [
        f"{arm} {backend} {numbers.loss(mean)}"
        for arm in arms
        for backend in run.backends
        if (mean := numbers.mean([t.final_loss for t in run.select(arm, backend)])) is not None
    ]
    return ", ".join(parts) or numbers.NONE


def _shares(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """A bar for each arm, a panel for each backend: mean over the ranks."""
    name = "communication"
    shown = [b for b in run.backends if any(ranks.parts(run, a, b) for a in arms)]
    with style.canvas(style.WIDTH, 1.2 + 0.27 * len(arms)) as made:
        grid = made.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, backend in zip(grid, shown, strict=True):
            for y, arm in enumerate(arms):
                rows = ranks.parts(run, arm, backend)
                if not rows:
                    continue
                mean = ranks.average(rows)
                right = bar(axes, y, mean, 0.68)
                share = ranks.share(run, arm, backend)
                if share is not None:
                    axes.annotate(f"{100 * share:.0f} %", (right, y), xytext=(3, 0), fontsize=7.5,
                                  textcoords="offset points", va="center")  # fmt: skip
            axes.set_yticks(range(len(arms)), list(arms), fontsize=8)
            axes.set_ylim(len(arms) - 0.4, -0.6)
            axes.margins(x=0.14)
            axes.set_xlim(left=0)
            axes.grid(visible=False, axis="y")
            axes.set_title(backend)
            axes.set_xlabel(words("axis.update_ms"))
        part_legend(made, words)
        text = style.svg(made, name)
    told = [
        f"{arm} {backend} {100 * share:.0f} %"
        for arm in arms
        for backend in shown
        if (share := ranks.share(run, arm, backend)) is not None
    ]
    alt = words("alt.communication", values=", ".join(told))
    return Figure(name, text, words("figure.communication"), alt)


def bar(axes: Any, y: float, row: dict[str, float], height: float, alpha: float = 1.0) -> float:
    """A stacked bar of one rank in milliseconds; where it ends."""
    left = 0.0
    for key, color in style.PARTS.items():
        width = 1e3 * row[key]
        axes.barh(y, width, height, left=left, color=color, alpha=alpha, linewidth=0)
        left += width
    return left


def part_legend(made: Any, words: Words, *more: Any) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=c, label=words(f"part_of_update.{k}")) for k, c in style.PARTS.items()]
    made.legend(handles=[*handles, *more], loc="outside upper left", ncols=5)
