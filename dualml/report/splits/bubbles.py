"""The bubble: how long the ranks of a pipeline idle, against what the schedule makes them idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import numbers, style
from dualml.report.cells import Cell, Table, heads, number, percent
from dualml.report.model import Run
from dualml.report.splits import arms, grids, spent
from dualml.report.splits.principle import piped
from dualml.report.spread import cell, interval
from dualml.report.style import Figure
from dualml.report.words import Words

#: Colours of backends, markers of schedules.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKERS = {"1f1b": "o", "gpipe": "s", "eager-1f1b": "^"}
ORDERS = tuple(MARKERS)


def counted(run: Run) -> list[list[str]]:
    """Groups of arms that differ in the number of micro-batches (and the schedule) alone; only
    those of schedules with the bubble of the formula, with two numbers and more of one."""
    ran = [
        arm
        for arm in arms.healthy(run, piped(run))
        if arms.schedule(run, arm) in ORDERS and run.select(arm)
    ]
    kept = []
    for group in arms.alike(run, ran, "split.micro_batches", "split.schedule"):
        counts = {(arms.schedule(run, a), arms.micro_batches(run, a)) for a in group}
        if len(counts) > len({order for order, _ in counts}):
            kept.append(sorted(group, key=lambda a: arms.micro_batches(run, a)))
    return kept


def bubble_table(run: Run, words: Words) -> Table | None:
    rows = []
    for arm in piped(run):
        for backend in run.backends:
            idle = spent.idle(run, arm, backend)
            if idle is None:
                continue
            ideal = grids.ideal(run, arm)
            note = interval(idle.scaled(100), lambda x: f"{x:.1f}")
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(backend),
                    number(str(arms.mesh(run, arm).pipeline)),
                    Cell(arms.called(arms.schedule(run, arm), words)),
                    number(str(arms.micro_batches(run, arm))),
                    number(percent(ideal)),
                    number(percent(spent.uneven(run, arm, backend))),
                    Cell(percent(idle.mean), "number", note=note),
                    cell(spent.step(run, arm, backend), 1e3),
                ]
            )
    if not rows:
        return None
    head = heads(
        words,
        *("arm", "backend", "pipeline:count", "split_schedule", "micro_batches:count"),
        *("idle_ideal:percent", "idle_passes:percent", "idle:percent", "step:milliseconds"),
    )
    return Table("bubble", words("table.bubble"), head, rows)


def bubble_figures(run: Run, words: Words) -> Iterator[Figure]:
    backends = spent.shown(run)
    for number_, group in enumerate(counted(run)):
        if any(spent.idle(run, arm, b) for arm in group for b in backends):
            yield _figure(run, words, group, backends, number_)


def _figure(
    run: Run, words: Words, group: Sequence[str], backends: Sequence[str], number_: int
) -> Figure:
    """Left the idle share, right the time of an update."""
    name = "bubble" if not number_ else f"bubble-{number_ + 1}"
    p = arms.mesh(run, group[0]).pipeline
    counts = sorted({arms.micro_batches(run, a) for a in group})
    with style.canvas(style.WIDTH, 3.6) as made:
        left, right = made.subplots(1, 2)
        most = counts[-1]
        fine = [1 + (most - 1) * k / 80 for k in range(81)]
        left.plot(fine, [100 * (p - 1) / (m + p - 1) for m in fine], color="#777777",
                  linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)  # fmt: skip
        places = [(b, s) for b in backends for s in MARKERS if _has(run, group, s)]
        for k, (backend, order) in enumerate(places):
            color = PALETTE[backends.index(backend) % len(PALETTE)]
            shift = 1.0 + 0.03 * (k - (len(places) - 1) / 2)
            mine = [a for a in group if arms.schedule(run, a) == order]
            told = [
                (arms.micro_batches(run, a), found)
                for a in mine
                if (found := spent.idle(run, a, backend)) is not None
            ]
            for m, found in told:
                if found.low is not None and found.high is not None:
                    left.plot([m * shift] * 2, [100 * found.low, 100 * found.high], color=color,
                              linewidth=1.3, alpha=0.8)  # fmt: skip
            left.plot([m * shift for m, _ in told], [100 * f.mean for _, f in told],
                      MARKERS[order], color=color, markersize=5.5, linestyle="-", linewidth=0.8,
                      markerfacecolor=color if order != "gpipe" else "white")  # fmt: skip
            times = [
                (arms.micro_batches(run, a), 1e3 * found.mean)
                for a in mine
                if (found := spent.step(run, a, backend)) is not None
            ]
            right.plot([m * shift for m, _ in times], [t for _, t in times], MARKERS[order],
                       color=color, markersize=5.5, linestyle="-", linewidth=0.8,
                       markerfacecolor=color if order != "gpipe" else "white")  # fmt: skip
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(m) for m in counts])
            axes.minorticks_off()
            axes.set_xlabel(words("axis.micro_batches"))
            axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
        left.set_ylabel(words("axis.idle"))
        right.set_ylabel(words("axis.update_ms"))
        _legend(made, run, words, group, backends)
        text = style.svg(made, name)
    values = [
        f"{arm} {b} {numbers.percent(found.mean)}"
        for arm in group
        for b in backends
        if (found := spent.idle(run, arm, b)) is not None
    ]
    caption = words("splits.figure.bubble", model=arms.model(run, group[0]), p=p)
    return Figure(name, text, caption, words("splits.alt.bubble", values=", ".join(values)))


def _has(run: Run, group: Sequence[str], order: str) -> bool:
    return any(arms.schedule(run, a) == order for a in group)


def _legend(
    made: object, run: Run, words: Words, group: Sequence[str], backends: Sequence[str]
) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=PALETTE[k % len(PALETTE)], linewidth=4, label=b)
        for k, b in enumerate(backends)
    ]
    for order, marker in MARKERS.items():
        if _has(run, group, order):
            handles.append(
                Line2D([], [], color=style.INK, marker=marker, linewidth=0.8, markersize=5.5,
                       markerfacecolor=style.INK if order != "gpipe" else "white",
                       label=arms.called(order, words))
            )  # fmt: skip
    handles.append(
        Line2D([], [], color="#777777", linewidth=1.1, linestyle=(0, (4, 3)), label="(p−1)/(m+p−1)")
    )
    made.legend(handles=handles, loc="outside upper left", ncols=len(handles))  # type: ignore[attr-defined]
