"""What ranks hold: micro-batches between forward and backward, their bytes, parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dualml.errors import UserError
from dualml.report import numbers, style
from dualml.report.cells import Cell, Table, heads, number
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.splits import arms, bubbles, spent
from dualml.report.splits.bubbles import MARKERS, PALETTE
from dualml.report.style import Figure
from dualml.report.words import Words
from dualml.split.schedules import SCHEDULES, live_bound


def by_rank(run: Run, arm: str, backend: str, key: str) -> list[float]:
    """Rank → the largest of all seeds; empty where unknown."""
    told = [t.memory for t in run.select(arm, backend) if t.memory]
    if not told:
        return []
    return [
        max(float(m[r].get(key) or 0.0) for m in told) for r in range(min(len(m) for m in told))
    ]


def bounds(run: Run, arm: str) -> list[int]:
    """Rank → the most micro-batches that the schedule lets it hold; empty where it has none."""
    plan = arms.plan(run, arm)
    name = arms.schedule(run, arm)
    if not arms.piped(run, arm) or name not in SCHEDULES or not plan.get("place"):
        return []
    place, m = list(plan["place"]), arms.micro_batches(run, arm)
    try:
        return [live_bound(name, place, m, r["pipeline"]) for r in plan["ranks"]]
    except (UserError, KeyError):
        return []


def memory_table(run: Run, words: Words) -> Table | None:
    rows = []
    for arm in arms.split_arms(run):
        bound = bounds(run, arm)
        for backend in run.backends:
            live = by_rank(run, arm, backend, "live")
            held = by_rank(run, arm, backend, "held_bytes")
            own = by_rank(run, arm, backend, "parameter_bytes")
            peak = by_rank(run, arm, backend, "peak_memory_mb")
            if not any((*live, *held, *own, *peak)):
                continue
            known = any(live)
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(backend),
                    number(_each([str(b) for b in bound])),
                    number(_each([f"{x:g}" for x in live]) if known else numbers.NONE),
                    number(_each([size_of(x) for x in held]) if known else numbers.NONE),
                    number(_each([size_of(x) for x in own])),
                    number(_each([numbers.factor(x) for x in peak if x])),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "live_bound:per_each_rank", "live:per_each_rank"),
        *("held:per_each_rank", "parameters:per_each_rank", "peak:memory_ranks"),
    )
    return Table("memory", words("table.memory"), head, rows)


def _each(texts: Sequence[str]) -> str:
    """``a · b``; ``2 × a`` where neighbours are alike."""
    runs = [(text, len(list(same))) for text, same in itertools.groupby(texts)]
    return " · ".join(f"{n} × {t}" if n > 1 else t for t, n in runs) or numbers.NONE


def memory_figures(run: Run, words: Words) -> Iterator[Figure]:
    """Activations of the first rank against the number of micro-batches."""
    backends = [b for b in run.backends if any(t.memory for t in run.trials if t.backend == b)]
    backends = [b for b in backends if b in spent.shown(run)]
    for number_, group in enumerate(bubbles.counted(run)):
        if any(any(by_rank(run, a, b, "held_bytes")) for a in group for b in backends):
            yield _figure(run, words, group, backends, number_)


def _figure(
    run: Run, words: Words, group: Sequence[str], backends: Sequence[str], number_: int
) -> Figure:
    """A panel for each backend; lines by schedule."""
    name = "held" if not number_ else f"held-{number_ + 1}"
    counts = sorted({arms.micro_batches(run, a) for a in group})
    width = style.WIDTH * (0.6 if len(backends) == 1 else 1.0)
    with style.canvas(width, 3.2) as made:
        grid = made.subplots(1, len(backends), squeeze=False)[0]
        for axes, backend in zip(grid, backends, strict=True):
            for k, (order, marker) in enumerate(MARKERS.items()):
                told = sorted(
                    (arms.micro_batches(run, a), found[0] / 2**20)
                    for a in group
                    if arms.schedule(run, a) == order
                    and (found := by_rank(run, a, backend, "held_bytes"))
                )
                if told:
                    axes.plot([m for m, _ in told], [x for _, x in told], marker, linestyle="-",
                              color=PALETTE[k % len(PALETTE)], linewidth=1.2, markersize=6,
                              label=arms.called(order, words))  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(m) for m in counts])
            axes.minorticks_off()
            axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
            axes.set_title(backend)
            axes.set_xlabel(words("axis.micro_batches"))
        grid[0].set_ylabel(words("axis.held"))
        handles, labels = grid[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside upper left", ncols=4)
        text = style.svg(made, name)
    values = [
        f"{arm} {b} {size_of(found[0])}"
        for arm in group
        for b in backends
        if (found := by_rank(run, arm, b, "held_bytes"))
    ]
    caption = words("splits.figure.held", model=arms.model(run, group[0]))
    alt = words("splits.alt.held", values=", ".join(values))
    return Figure(name, text, caption, alt, width)
