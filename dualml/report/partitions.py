"""What every partition of the run deals: labels on ranks, coverage, overlap, skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dualml.report import numbers, style
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.deals import Deal, Statement, deals, same_samples
from dualml.report.model import Run
from dualml.report.strategies import short
from dualml.report.style import Figure
from dualml.report.words import Words

#: One hue from light to dark: order is seen under every colour blindness, and in print.
COLORS = "Blues"
COLUMNS, MOST_PANELS = 3, 18
MOST_LETTERS = 42  # above a panel
MOST_NUMBERS = 12  # ranks or labels, beyond which cells hold no numbers
CELL = 0.21  # inches, the height of a rank
MOST_ARMS = 3  # named beneath a partition


def partition_figures(run: Run, words: Words) -> Iterator[Figure]:
    """A panel for each distinct partition, all on one scale."""
    shown = [d for d in deals(run) if d.first.get("histogram")]
    if not shown:
        return
    top = max(max(map(max, d.first["histogram"])) for d in shown)
    several = len({d.ranks for d in shown}) > 1
    for start in range(0, len(shown), MOST_PANELS):
        part = shown[start : start + MOST_PANELS]
        name = "partitions" + (f"-{start // MOST_PANELS + 1}" if start else "")
        yield _figure(words, name, part, top, several)


def _figure(words: Words, name: str, shown: Sequence[Deal], top: int, several: bool) -> Figure:
    columns = min(COLUMNS, len(shown))
    lines = [shown[k : k + columns] for k in range(0, len(shown), columns)]
    tall = [min(3.2, max(2 * CELL, CELL * max(d.ranks for d in line))) for line in lines]
    width = style.WIDTH if columns > 1 else 0.6 * style.WIDTH
    with style.canvas(width, 0.85 + sum(tall) + 0.55 * len(lines)) as made:
        grid = made.subplots(len(lines), columns, squeeze=False, height_ratios=tall)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        for k, (axes, deal) in enumerate(zip(grid.flat, shown, strict=False)):
            mesh = heat(axes, deal.first["histogram"], top, words("value.no_samples"))
            axes.set_title(_title(words, deal, several), fontsize=8.5)
            _ticks(axes.set_xticks, [str(label) for label in deal.first["labels"]])
            _ticks(axes.set_yticks, [str(rank) for rank in range(deal.ranks)])
            if k % columns == 0:
                axes.set_ylabel(words("axis.rank"))
            if k + columns >= len(shown):
                axes.set_xlabel(words("axis.label"))
        scale(made, mesh, grid, words("axis.samples"), sum(tall))
        text = style.svg(made, name)
    notes = [words("figure.partitions", seed=shown[0].seed)]
    told = [f"{d.text} (n = {d.ranks})" for d in shown]
    empty = [t for d in shown if (t := _empty([d.first], words))]
    alt = words("alt.partitions", seed=shown[0].seed, values=", ".join(told))
    return Figure(name, text, words.sentences(notes), words.sentences([alt, *empty]), width)


def _title(words: Words, deal: Deal, several: bool) -> str:
    """As much as there is room for; with the number of ``several`` different ranks."""
    room = MOST_LETTERS - (8 if several else 0)
    text = deal.text if len(deal.text) <= room else f"{deal.text[: room - 1]}…"
    return words("figure.panel", backend=text, n=deal.ranks) if several else text


def heat(axes: Any, table: Sequence[Sequence[float | None]], top: float, nothing: str = "") -> Any:
    """A table as colours from 0 to ``top``, the first row above; numbers in the cells of a small
    one. Across a row of zeros stands ``nothing``; where that is empty, zeros are numbers, too."""
    values = np.array([[np.nan if v is None else v for v in row] for row in table], dtype=float)
    rows, columns = values.shape
    mesh = axes.pcolormesh(values, cmap=COLORS, vmin=0, vmax=top or 1, edgecolors="white",
                           linewidth=0.5)  # fmt: skip
    axes.set_ylim(rows, 0)
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=7.5)
    for side in axes.spines.values():
        side.set_visible(False)
    for y, row in enumerate(values):
        if nothing and not np.nan_to_num(row).any():
            axes.text(columns / 2, y + 0.5, nothing, ha="center", va="center", fontsize=7)
        elif max(rows, columns) <= MOST_NUMBERS:
            for x, value in enumerate(row):
                if value > 0 or (value == 0 and not nothing):
                    color = "white" if value > 0.55 * top else style.INK
                    axes.text(x + 0.5, y + 0.5, f"{value:.0f}", ha="center", va="center",
                              fontsize=6, color=color)  # fmt: skip
    return mesh


def scale(made: Any, mesh: Any, grid: Any, label: str, tall: float) -> None:
    """The colours as a bar above panels that are so many inches tall together."""
    bar = made.colorbar(mesh, ax=grid, location="top", shrink=0.45, aspect=45, pad=0.1 / tall,
                        anchor=(0.0, 0.5))  # fmt: skip
    bar.set_label(label)
    bar.outline.set_visible(False)


def _ticks(put: Any, names: Sequence[str]) -> None:
    """In the middle of the cells; of many names every second, fifth, …"""
    every = next(k for k in (1, 2, 5, 10, 20, 50, 100) if len(names) / k <= MOST_NUMBERS or k > 50)
    at = range(0, len(names), every)
    put([k + 0.5 for k in at], [names[k] for k in at])


def _empty(stated: Sequence[Statement], words: Words) -> str:
    """Ranks without samples, in words."""
    found = sorted({r for s in stated for r, size in enumerate(s["sizes"]) if not size})
    if not found:
        return ""
    return words.plural("value.empty_ranks", len(found), ranks=words.join([str(r) for r in found]))


def partition_table(run: Run, words: Words) -> Table | None:
    rows = [_row(run, words, deal) for deal in deals(run)]
    if not rows:
        return None
    head = heads(
        words,
        *("partition", "ranks:count", "part_sizes:samples", "coverage:percent", "missed:samples"),
        *("repeated:samples", "shared:samples", "emd:1", "js:bits", "fingerprint", "same_samples"),
    )
    return Table("partitions", words("table.partitions"), head, rows)


def _row(run: Run, words: Words, deal: Deal) -> list[Cell]:
    sizes = [size for s in deal.all for size in s["sizes"]]
    low, high = numbers.quantity(min(sizes)), numbers.quantity(max(sizes))
    missed, whole = deal.mean("missed"), deal.mean("samples")
    covered = 100 * (1 - missed / whole) if missed is not None and whole else None
    empty = _empty(deal.all, words)
    return [
        Cell(deal.text, "code", note=", ".join(short(deal.arms, words, MOST_ARMS))),
        number(str(deal.ranks)),
        Cell(low if low == high else f"{low} – {high}", "number", note=empty),
        number(numbers.NONE if covered is None else f"{covered:.1f}"),
        *(number(numbers.quantity(deal.mean(k))) for k in ("missed", "repeated", "shared")),
        _skew(deal, "emd"),
        _skew(deal, "js"),
        Cell(str(deal.first.get("sha256"))[:8], "code"),
        _same(run, words, deal),
    ]


def _skew(deal: Deal, what: str) -> Cell:
    """Mean over the ranks, beneath it the largest."""
    mean, most = deal.skew(what)
    if mean is None or most is None:
        return number(numbers.NONE)
    return Cell(f"{mean:.3f}", "number", note=f"≤ {most:.3f}")


def _same(run: Run, words: Words, deal: Deal) -> Cell:
    alike, compared = same_samples(run, deal.arms)
    if not compared:
        return Cell(numbers.NONE)
    told = words("value.of", n=alike, of=compared)
    if alike == compared:
        return Cell(f"✓ {words('value.yes')}", tone="good", note=told)
    return Cell(f"≠ {words('value.no')}", tone="bad", note=told)
