"""The collectives alone: their measurements, and time against size as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dualml.report import fits, numbers, ranks, style
from dualml.report.model import Run, Trial
from dualml.report.style import Figure
from dualml.report.words import Words


@dataclass(frozen=True)
class Measured:
    """All measurements of one backend among n ranks.

    Attributes:
        rows: (strategy, bytes) → the row of ``collectives.json``; of several seeds the medians.
        copies: bytes → seconds to copy them in memory.
        threads: the ranks are threads of one process, which send nothing over any interface.
    """

    backend: str
    n: int
    rows: Mapping[tuple[str, int], Mapping[str, Any]]
    copies: Mapping[int, float]
    threads: bool = False

    @property
    def strategies(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.rows))

    @property
    def sizes(self) -> list[int]:
        return sorted({size for _, size in self.rows})

    def seconds(self, strategy: str, size: int) -> float | None:
        row = self.rows.get((strategy, size))
        return float(row["seconds"]) if row else None

    def exact(self) -> list[str]:
        """Strategies that give every rank the sum: those that compete."""
        return [name for name in self.strategies if ranks.exact(name)]


def measured(run: Run) -> list[Measured]:
    """By backend and number of ranks."""
    found: dict[tuple[str, int], list[Trial]] = {}
    for t in ranks.measured(run):
        found.setdefault((t.backend, t.world_size), []).append(t)
    order = sorted(found, key=lambda key: (run.backends.index(key[0]), key[1]))
    return [_together(*key, found[key]) for key in order]


def _together(backend: str, n: int, trials: Sequence[Trial]) -> Measured:
    rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    copies: dict[int, list[float]] = {}
    for t in trials:
        told = t.collectives or {}
        for row in told["rows"]:
            rows.setdefault((str(row["strategy"]), int(row["bytes"])), []).append(row)
        for size, seconds in (told.get("copy_s") or {}).items():
            copies.setdefault(int(size), []).append(float(seconds))
    taken = ("seconds", "low", "high")
    return Measured(
        backend,
        n,
        {k: {**v[0], **{key: median(r[key] for r in v) for key in taken}} for k, v in rows.items()},
        {size: median(v) for size, v in copies.items()},
        trials[0].framework == "numpy",
    )


def size_of(nbytes: float) -> str:
    """``64 KiB``."""
    for power, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= power:
            return f"{numbers.factor(nbytes / power)} {unit}"
    return f"{numbers.factor(nbytes)} B"


def collective_figures(run: Run, words: Words) -> Iterator[Figure]:
    """Time against size; a panel for each backend and number of ranks."""
    found = measured(run)
    if not found:
        return
    backends = list(dict.fromkeys(m.backend for m in found))
    sizes = sorted({m.n for m in found})
    by_backend = len(sizes) > 1
    rows, columns = (len(backends), len(sizes)) if by_backend else (1, len(backends))
    name = "collectives"
    with style.canvas(style.WIDTH, 0.9 + 3.2 * rows) as made:
        grid = made.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat:
            axes.set_visible(False)
        for m in found:
            i, j = backends.index(m.backend), sizes.index(m.n)
            axes = grid[i, j] if by_backend else grid[0, i]
            axes.set_visible(True)
            _panel(axes, run, m)
            axes.set_title(words("figure.panel", backend=m.backend, n=m.n))
        for axes in grid[-1]:
            axes.set_xlabel(words("axis.bytes"))
        for row in grid:
            row[0].set_ylabel(words("axis.collective_s"))
        _legend(made, run, found, words)
        text = style.svg(made, name)
    notes = [words("figure.collectives")]
    if run.cost.get("fits"):
        notes.append(words("figure.fitted"))
    alt = words("alt.collectives", fastest="; ".join(_fastest(m) for m in found))
    yield Figure(name, text, words.sentences(notes), alt)


def _panel(axes: Any, run: Run, m: Measured) -> None:
    for k, strategy in enumerate(m.strategies):
        color, marker = look(strategy)
        points = [(s, m.rows[strategy, s]) for s in m.sizes if (strategy, s) in m.rows]
        # Quartiles side by side, so that they do not hide one another.
        shift = 1.06 ** (k - (len(m.strategies) - 1) / 2)
        x = [s * shift for s, _ in points]
        low, high = ([row[key] for _, row in points] for key in ("low", "high"))
        axes.vlines(x, low, high, color=color, linewidth=1.0, alpha=0.45)
        seconds = [row["seconds"] for _, row in points]
        axes.plot(x, seconds, marker=marker, color=color, markersize=4.2, linewidth=0,
                  markeredgewidth=0, zorder=3)  # fmt: skip
        line = [(s, fits.fitted(run, m.backend, m.n, strategy, s)) for s in _dense(m.sizes)]
        kept = [(s, t) for s, t in line if t]
        if kept:
            axes.plot(*zip(*kept, strict=True), color=color, linewidth=0.9, alpha=0.85)
        else:
            axes.plot(x, seconds, color=color, linewidth=0.8, alpha=0.5)
    copies = sorted(m.copies.items())
    if copies:
        axes.plot(*zip(*copies, strict=True), color="#9A9A9A", linewidth=1.6, linestyle=(0, (3, 2)))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = m.sizes if len(m.sizes) <= 4 else m.sizes[:: (len(m.sizes) + 3) // 4]
    axes.set_xticks(ticks, [size_of(s) for s in ticks])
    axes.minorticks_off()


def _dense(sizes: Sequence[int]) -> list[int]:
    """Sizes for a smooth line: multiples of four bytes."""
    import numpy as np

    return [4 * int(s) for s in np.geomspace(min(sizes) / 4, max(sizes) / 4, 40)]


def look(strategy: str) -> tuple[str, str]:
    return style.STRATEGIES.get(strategy, ("#000000", "."))


def _legend(made: Any, run: Run, found: Sequence[Measured], words: Words) -> None:
    from matplotlib.lines import Line2D

    names = [s for s in ranks.strategies(run) if any(s in m.strategies for m in found)]
    handles = [
        Line2D([], [], color=look(s)[0], marker=look(s)[1], markersize=6, linewidth=1.2, label=s)
        for s in names
    ]
    grey: dict[str, Any] = {"color": "#9A9A9A", "linewidth": 1.6, "linestyle": (0, (3, 2))}
    handles.append(Line2D([], [], label=words("figure.copy"), **grey))
    made.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=2.2)


def _fastest(m: Measured) -> str:
    """The fastest exact strategy at the smallest and at the largest size."""
    told = []
    for size in (m.sizes[0], m.sizes[-1]):
        timed = {s: t for s in m.exact() if (t := m.seconds(s, size)) is not None}
        if timed:
            best = min(timed, key=lambda s: timed[s])
            told.append(f"{size_of(size)} {best} {numbers.quantity(1e3 * timed[best])} ms")
    return f"{m.backend}, n = {m.n}: {', '.join(told)}"
