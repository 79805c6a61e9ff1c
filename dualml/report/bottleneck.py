"""One slow node: each rank's time with and without it, and the slowdown against the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from dualml.report import fits, numbers, ranks, style
from dualml.report.model import Run
from dualml.report.style import Figure, Look
from dualml.report.training import bar, part_legend
from dualml.report.words import Words

COLUMNS = 3


def slow_arms(run: Run) -> list[str]:
    """Slow arms that ran beside the same arm without the handicap, by kind of handicap."""
    found = [
        arm
        for arm in ranks.several(run)
        if ranks.slow(run, arm)
        and run.select(arm)
        and (base := ranks.base_of(run, arm)) is not None
        and run.select(base)
    ]
    kinds = [*ranks.HANDICAPS, ""]
    return sorted(found, key=lambda arm: kinds.index(ranks.handicap(run, arm)))


def others_slowdown(run: Run, arm: str, backend: str) -> float | None:
    """How much longer an update of the ranks without the handicap takes, on the mean."""
    base, set_up = ranks.base_of(run, arm), ranks.slow(run, arm)
    mine = ranks.parts(run, arm, backend)
    theirs = ranks.parts(run, base, backend) if base else []
    if not mine or not theirs or set_up is None or len(mine) < 2:
        return None
    pairs = [
        (a["step_s"], b["step_s"])
        for r, (a, b) in enumerate(zip(mine, theirs, strict=False))
        if r != set_up["rank"] and b["step_s"]
    ]
    return mean(a for a, _ in pairs) / mean(b for _, b in pairs) if pairs else None


def waiting(run: Run, arm: str, backend: str) -> float | None:
    """Share of their time the ranks without the handicap wait."""
    set_up, rows = ranks.slow(run, arm), ranks.parts(run, arm, backend)
    others = [row for r, row in enumerate(rows) if set_up and r != set_up["rank"]]
    total = sum(row["step_s"] for row in others)
    return sum(row["wait_s"] for row in others) / total if total else None


def before_and_after(run: Run, arm: str, backend: str) -> tuple[float, float] | None:
    """Mean seconds of an update before and after the handicap sets in, where it does so midway."""
    set_up = ranks.slow(run, arm)
    if not set_up or set_up["since"] <= 1:
        return None
    found = []
    for t in run.select(arm, backend):
        spent = [r["done"] - r["begin"] for r in t.times]
        first = int(set_up["since"]) - 1
        if spent and all(1 < first < len(s) for s in spent):
            # The first update compiles and connects.
            found.append([mean(float(s[a:b].mean()) for s in spent) for a, b in
                          ((1, first), (first, None))])  # fmt: skip
    if not found:
        return None
    return mean(f[0] for f in found), mean(f[1] for f in found)


def bottleneck_figures(run: Run, words: Words) -> Iterator[Figure]:
    arms = slow_arms(run)
    for backend in run.backends:
        mine = [a for a in arms if ranks.parts(run, a, backend)]
        if mine:
            yield _ranks(run, words, backend, mine)
    if arms:
        yield _slowdowns(run, words, arms)


def _ranks(run: Run, words: Words, backend: str, arms: Sequence[str]) -> Figure:
    """A panel for each slow arm: a bar for each rank, above it a pale one without the handicap."""
    from matplotlib.patches import Patch

    name = "bottleneck" if len(run.backends) == 1 else f"bottleneck-{_plain(backend)}"
    rows = -(-len(arms) // COLUMNS)
    most = max(ranks.size(run, a) for a in arms)
    with style.canvas(style.WIDTH, 0.8 + rows * (0.8 + 0.3 * most)) as made:
        grid = made.subplots(rows, COLUMNS, squeeze=False)
        for axes in grid.flat[len(arms) :]:
            axes.set_visible(False)
        right: dict[str, float] = {}
        for axes, arm in zip(grid.flat, arms, strict=False):
            slow, base = ranks.parts(run, arm, backend), ranks.base_of(run, arm)
            healthy = ranks.parts(run, base, backend) if base else []
            kind = ranks.handicap(run, arm)
            for r, row in enumerate(slow):
                right[kind] = max(right.get(kind, 0.0), bar(axes, r + 0.12, row, 0.44))
                if r < len(healthy):
                    end = bar(axes, r - 0.27, healthy[r], 0.26, 0.45)
                    right[kind] = max(right[kind], end)
            told = ranks.slow(run, arm) or {}
            labels = [f"{r} ◂" if r == told.get("rank") else str(r) for r in range(len(slow))]
            axes.set_yticks(range(len(slow)), labels)
            axes.set_ylim(len(slow) - 0.5, -0.6)
            axes.grid(visible=False, axis="y")
            axes.set_title(arm, fontsize=8.5)
        for k, (axes, arm) in enumerate(zip(grid.flat, arms, strict=False)):
            axes.set_xlim(0, 1.04 * right[ranks.handicap(run, arm)])
            if k + COLUMNS >= len(arms):
                axes.set_xlabel(words("axis.update_ms"))
            if k % COLUMNS == 0:
                axes.set_ylabel(words("axis.rank"))
        pale = Patch(color="#BDBDBD", label=words("figure.without"))
        part_legend(made, words, pale)
        text = style.svg(made, name)
    alt = words("alt.bottleneck", backend=backend, values=_told(run, arms, [backend]))
    return Figure(name, text, words("figure.bottleneck", backend=backend), alt)


def _slowdowns(run: Run, words: Words, arms: Sequence[str]) -> Figure:
    """Factor on the time of an update: measured by backend, predicted beside it."""
    from matplotlib.lines import Line2D

    look, name = Look(run), "slowdown"
    shown = [b for b in run.backends if any(run.select(a, b) for a in arms)]
    palette = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
    colors = {b: palette[k % len(palette)] for k, b in enumerate(look.order(shown))}
    predicted = False
    with style.canvas(style.WIDTH, 1.2 + 0.3 * len(arms)) as made:
        axes = made.subplots()
        seen = [1.0]
        for y, arm in enumerate(arms):
            for k, backend in enumerate(shown):
                at = y + 0.18 * (k - (len(shown) - 1) / 2)
                value = fits.measured_slowdown(run, arm, backend)
                guess = fits.predicted_slowdown(run, arm, backend)
                if value is not None and guess is not None:
                    axes.plot([guess, value], [at, at], color=colors[backend], linewidth=0.8,
                              alpha=0.6)  # fmt: skip
                if value is not None:
                    axes.plot(value, at, "o", color=colors[backend], markersize=5)
                if guess is not None:
                    predicted = True
                    axes.plot(guess, at, "D", color=colors[backend], markersize=5.5,
                              markerfacecolor="white", zorder=3)  # fmt: skip
                seen += [v for v in (value, guess) if v is not None]
        axes.axvline(1, color="#999999", linewidth=0.9)
        axes.set_yticks(range(len(arms)), list(arms), fontsize=8.5)
        axes.set_ylim(len(arms) - 0.4, -0.6)
        if max(seen) / min(seen) > 8:
            axes.set_xscale("log")
            ticks = [
                t for t in (0.5, 1, 2, 5, 10, 20, 50, 100) if min(seen) / 2 < t < max(seen) * 2
            ]
            axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
            axes.minorticks_off()
        axes.set_xlabel(words("axis.slowdown"))
        handles = [
            Line2D([], [], color=c, marker="o", linewidth=0, markersize=5, label=b)
            for b, c in colors.items()
        ]
        if predicted:
            handles.append(
                Line2D([], [], color=style.INK, marker="D", markerfacecolor="white", linewidth=0,
                       markersize=5.5, label=words("figure.predicted"))
            )  # fmt: skip
        made.legend(handles=handles, loc="outside upper left", ncols=5, handlelength=1.2)
        text = style.svg(made, name)
    alt = words("alt.slowdown", values=_told(run, arms, shown))
    return Figure(name, text, words("figure.slowdown"), alt)


def _told(run: Run, arms: Sequence[str], backends: Sequence[str]) -> str:
    parts = [
        f"{arm} {backend} × {numbers.factor(value)}"
        for arm in arms
        for backend in backends
        if (value := fits.measured_slowdown(run, arm, backend)) is not None
    ]
    return ", ".join(parts) or numbers.NONE


def _plain(backend: str) -> str:
    return style.slug(backend)
