"""Figures of scaling: speed-up against the number of ranks, and where an update's time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualml.report import families, numbers, ranks, scaling, style
from dualml.report.families import STRONG, Family
from dualml.report.model import Run
from dualml.report.scaling import PARTS, Point
from dualml.report.style import Figure, Look
from dualml.report.words import Words

COLORS = {
    "gradient": style.PARTS["compute_s"],
    "update": "#44638F",
    "wait": style.PARTS["wait_s"],
    "transfer": style.PARTS["transfer_s"],
    "rest": "#C9C9C9",
}
WHOLE = "#C5D0E0"  # of one rank no parts are recorded
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def scaling_figures(run: Run, words: Words) -> Iterator[Figure]:
    shown = ranks.frameworks(run)
    told = [p for p in scaling.all_points(run) if p.backend in shown]
    if any(p.speedup for p in told):
        yield _speedups(run, words, told)
    if any(p.parts for p in told):
        yield _parts(words, told, [b for b in shown if any(p.backend == b for p in told)])


def _families(told: Sequence[Point]) -> list[Family]:
    return list(dict.fromkeys(p.family for p in told))


def _speedups(run: Run, words: Words, told: Sequence[Point]) -> Figure:
    """A panel for each family: ideal line, Amdahl's curve, measured points with intervals."""
    look = Look(run)
    every = [f for f in _families(told) if any(p.speedup for p in told if p.family == f)]
    backends = [b for b in run.backends if any(p.speedup and p.backend == b for p in told)]
    colors = {b: PALETTE[k % len(PALETTE)] for k, b in enumerate(look.order(backends))}
    columns = min(3, len(every))
    rows = -(-len(every) // columns)
    width = style.WIDTH * (0.62, 0.92, 1.0)[columns - 1]
    with style.canvas(width, 0.8 + 2.9 * rows) as made:
        grid = made.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(every) :]:
            axes.set_visible(False)
        for k, (axes, family) in enumerate(zip(grid.flat, every, strict=False)):
            mine = [p for p in told if p.family == family and p.speedup]
            _panel(axes, [p for p in told if p.family == family], mine, colors)
            axes.set_title(scaling.name(family, every, words))
            axes.set_xlabel(words("axis.ranks"))
            if k % columns == 0:
                axes.set_ylabel(words("axis.speedup"))
        _legend(made, words, colors, [p for p in told if p.speedup])
        text = style.svg(made, "speed-up")
    left_out = list(dict.fromkeys(p.arm for p in told if p.n > 1 and p.why_not))
    notes = [words("figure.speedup")]
    if left_out:
        notes.append(words("figure.left_out", arms=words.join(left_out)))
    values = [f"{p.arm} {p.backend} {numbers.factor(p.speedup.mean)}" for p in told if p.speedup]
    alt = words("alt.speedup", values=", ".join(values))
    return Figure("speed-up", text, words.sentences(notes), alt, width)


def _panel(
    axes: Any, told: Sequence[Point], mine: Sequence[Point], colors: Mapping[str, str]
) -> None:
    most = max(p.n for p in mine)
    axes.plot([1, most], [1, most], color="#999999", linewidth=0.9, linestyle=(0, (4, 3)))
    tall = [float(most)]
    for k, (backend, color) in enumerate(colors.items()):
        # Side by side, so that the intervals of backends that agree can be told apart.
        shift = (k - (len(colors) - 1) / 2) * 0.035 * (most - 1)
        here = [p for p in mine if p.backend == backend]
        if not here:
            continue
        _curve(axes, told, here, color)
        x, y = [1.0], [1.0]
        for p in here:
            assert p.speedup is not None
            at = p.n + shift
            x.append(at)
            y.append(p.speedup.mean)
            if p.communicating is not None:
                axes.plot(at, p.communicating, "D", color=color, markersize=5,
                          markerfacecolor="white", zorder=3)  # fmt: skip
                tall.append(p.communicating)
            if p.speedup.low is not None:
                axes.plot([at, at], [p.speedup.low, p.speedup.high], color=color, linewidth=1.4)
                tall.append(p.speedup.high or 0.0)
        axes.plot(x, y, "o-", color=color, markersize=5.5, linewidth=0.9, alpha=0.95, zorder=4)
        tall += y
    sizes = sorted({1, *(p.n for p in mine)})
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set_xlim(1 - 0.12 * (most - 1), most + 0.12 * (most - 1))
    axes.set_ylim(0, 1.06 * max(tall))


def _curve(axes: Any, told: Sequence[Point], here: Sequence[Point], color: str) -> None:
    """Amdahl's law with the mean of the measured updates of the parameters."""
    serial = [p.parts["update"] for p in here if "update" in p.parts]
    one = next((p.step.mean for p in told if p.n == 1 and p.backend == here[0].backend), None)
    if here[0].family.kind != STRONG or not serial or one is None:
        return
    mean, most = sum(serial) / len(serial), max(p.n for p in here)
    x = [1 + (most - 1) * k / 60 for k in range(61)]
    axes.plot(x, [families.amdahl(n, one, mean) for n in x], color=color, linewidth=0.8,
              linestyle=(0, (1, 1.4)))  # fmt: skip


def _legend(made: Any, words: Words, colors: Mapping[str, str], mine: Sequence[Point]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, marker="o", label=b) for b, c in colors.items()]
    ideal: dict[str, Any] = {"color": "#999999", "linestyle": (0, (4, 3))}
    handles.append(Line2D([], [], label=words("figure.ideal"), **ideal))
    if any(p.family.kind == STRONG and "update" in p.parts for p in mine):
        law: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (1, 1.4))}
        handles.append(Line2D([], [], label=words("figure.amdahl"), **law))
    if any(p.communicating is not None for p in mine):
        white: dict[str, Any] = {"color": style.INK, "markerfacecolor": "white", "markersize": 5}
        told = words("figure.communicating")
        handles.append(Line2D([], [], marker="D", linewidth=0, label=told, **white))
    made.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=2.0,
                columnspacing=1.2)  # fmt: skip


def _parts(words: Words, told: Sequence[Point], shown: Sequence[str]) -> Figure:
    """Families down, backends across, a bar for each number of ranks."""
    every = _families(told)
    heights = [max(len([p for p in told if p.family == f and p.backend == b]) for b in shown)
               for f in every]  # fmt: skip
    crowded = False
    with style.canvas(style.WIDTH, 1.1 + 0.42 * sum(heights) + 0.35 * len(every)) as made:
        grid = made.subplots(len(every), len(shown), squeeze=False, sharex="col",
                             height_ratios=heights)  # fmt: skip
        for row, family in zip(grid, every, strict=True):
            for axes, backend in zip(row, shown, strict=True):
                mine = [p for p in told if p.family == family and p.backend == backend]
                labels = []
                for y, p in enumerate(mine):
                    _bar(axes, y, p)
                    short = p.room.enough is False
                    crowded |= short
                    labels.append(f"{words('figure.ranks', n=p.n)}{' *' if short else ''}")
                axes.set_yticks(range(len(mine)), labels)
                axes.set_ylim(max(len(mine), 1) - 0.4, -0.6)
                axes.set_xlim(0, 1.16e3 * max(_length(p) for p in told if p.backend == backend))
                axes.grid(visible=False, axis="y")
                kind = scaling.name(family, every, words)
                axes.set_title(words("scaling.on", backend=backend, kind=kind))
        for axes in grid[-1]:
            axes.set_xlabel(words("axis.update_ms"))
        _part_legend(made, words, told)
        text = style.svg(made, "update-parts")
    notes = [words("figure.update_parts")]
    if crowded:
        notes.append(words("figure.take_turns"))
    values = [f"{p.arm} {p.backend} {numbers.quantity(1e3 * p.step.mean)}" for p in told]
    alt = words("alt.update_parts", values=", ".join(values))
    return Figure("update-parts", text, words.sentences(notes), alt)


def _length(p: Point) -> float:
    return max(p.step.mean, sum(p.parts.values()))


def _bar(axes: Any, y: float, p: Point) -> None:
    """Parts in milliseconds, then the whole as a number."""
    left = 0.0
    if not p.parts:
        left = 1e3 * p.step.mean
        axes.barh(y, left, 0.66, color=WHOLE, linewidth=0)
    for part in PARTS:
        width = 1e3 * p.parts.get(part, 0.0)
        axes.barh(y, width, 0.66, left=left, color=COLORS[part], linewidth=0)
        left += width
    axes.annotate(numbers.quantity(1e3 * p.step.mean), (left, y), xytext=(3, 0), fontsize=8,
                  textcoords="offset points", va="center")  # fmt: skip


def _part_legend(made: Any, words: Words, told: Sequence[Point]) -> None:
    from matplotlib.patches import Patch

    used = [k for k in PARTS if any(k in p.parts for p in told)]
    handles = [Patch(color=COLORS[k], label=words(f"scaling.part.{k}")) for k in used]
    if any(not p.parts for p in told):
        handles.insert(0, Patch(color=WHOLE, label=words("scaling.part.whole")))
    made.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.4,
                columnspacing=1.2)  # fmt: skip
