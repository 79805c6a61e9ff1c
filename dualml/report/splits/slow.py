"""A slow link: what it does to a split by layer and to one inside the layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualml.report import numbers, ranks, style
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.scaling import PARTS
from dualml.report.scaling_figures import COLORS
from dualml.report.splits import arms, spent
from dualml.report.spread import cell
from dualml.report.style import Figure
from dualml.report.words import Words


def slow_splits(run: Run) -> list[tuple[str, str]]:
    """Arms with a handicap, and beside each the same arm without."""
    return [
        (arm, base)
        for arm in arms.split_arms(run)
        if ranks.slow(run, arm) and run.select(arm) and (base := arms.base_of(run, arm)) is not None
    ]


def crossing_bytes(run: Run, arm: str) -> float:
    """Bytes of an update over all links and in all collectives."""
    plan = arms.plan(run, arm)
    return float(sum(x["nbytes"] for key in ("links", "meetings") for x in plan.get(key) or ()))


def crossing_calls(run: Run, arm: str) -> int:
    plan = arms.plan(run, arm)
    links = sum(x["messages"] for x in plan.get("links") or ())
    return int(links + sum(m["calls"] for m in plan.get("meetings") or ()))


def slow_link_table(run: Run, words: Words) -> Table | None:
    rows = []
    for arm, base in slow_splits(run):
        for backend in run.backends:
            after = spent.step(run, arm, backend)
            if after is None:
                continue
            waits = [spent.waiting(run, name, backend) for name in (base, arm)]
            nbytes = crossing_bytes(run, arm)
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(backend),
                    Cell(arms.told(run, arm, words)),
                    Cell(ranks.told_slow(run, arm, words)),
                    number(size_of(nbytes) if nbytes else numbers.NONE),
                    number(numbers.quantity(crossing_calls(run, arm)) if nbytes else numbers.NONE),
                    cell(spent.step(run, base, backend), 1e3),
                    cell(after, 1e3),
                    cell(spent.against(run, arm, backend, base), text=numbers.factor),
                    *(number(_ms(value)) for value in waits),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "split_how", "handicap", "crossed:bytes_update", "calls:count"),
        *("without:milliseconds", "with:milliseconds", "slowdown:relative"),
        *("talk_without:milliseconds", "talk_with:milliseconds"),
    )
    return Table("slow-link", words("table.slow_link"), head, rows)


def _ms(value: float | None) -> str:
    return numbers.quantity(1e3 * value) if value is not None else numbers.NONE


def slow_link_figures(run: Run, words: Words) -> Iterator[Figure]:
    pairs, backends = slow_splits(run), spent.shown(run)
    if any(spent.by_rank(run, arm, b) for arm, _ in pairs for b in backends):
        yield _figure(run, words, pairs, backends)


def _figure(
    run: Run, words: Words, pairs: Sequence[tuple[str, str]], backends: Sequence[str]
) -> Figure:
    """Mean over the ranks: without the handicap, and below it with."""
    from matplotlib.patches import Patch

    names = [name for arm, base in pairs for name in (base, arm)]
    with style.canvas(style.WIDTH, 1.2 + 0.3 * len(names)) as made:
        grid = made.subplots(1, len(backends), sharey=True, squeeze=False)[0]
        for axes, backend in zip(grid, backends, strict=True):
            right = 0.0
            for y, name in enumerate(names):
                at = y + 0.25 * (y // 2)
                right = max(right, _bar(axes, at, spent.average(spent.by_rank(run, name, backend))))
            places = [y + 0.25 * (y // 2) for y in range(len(names))]
            axes.set_yticks(places, names, fontsize=8.5)
            axes.set_ylim(places[-1] + 0.6, -0.6)
            axes.set_xlim(0, 1.17 * right or 1.0)
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
            axes.set_title(backend)
            axes.set_xlabel(words("axis.update_ms"))
        handles = [Patch(color=COLORS[k], label=words(f"scaling.part.{k}")) for k in PARTS]
        made.legend(handles=handles, loc="outside upper left", ncols=5, handlelength=1.3)
        text = style.svg(made, "slow-link")
    values = [
        f"{arm} {b} × {numbers.factor(found.mean)}"
        for arm, base in pairs
        for b in backends
        if (found := spent.against(run, arm, b, base)) is not None
    ]
    alt = words("alt.slowdown", values=", ".join(values))
    return Figure("slow-link", text, words("splits.figure.slow_link"), alt)


def _bar(axes: Any, y: float, parts: dict[str, float]) -> float:
    left = 0.0
    for key in PARTS if parts else ():
        axes.barh(y, 1e3 * parts[key], 0.8, left=left, color=COLORS[key], linewidth=0)
        left += 1e3 * parts[key]
    if parts:
        axes.annotate(numbers.quantity(left), (left, y), xytext=(3, 0), fontsize=8,
                      textcoords="offset points", va="center")  # fmt: skip
    return left
