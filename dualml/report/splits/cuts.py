"""Where to cut: the time of an update over the position of the cut, and what a balance chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import numbers, style
from dualml.report.cells import Cell, Head, Table, heads, number
from dualml.report.collectives import size_of
from dualml.report.model import Run
from dualml.report.splits import arms, spent
from dualml.report.splits.bubbles import PALETTE
from dualml.report.splits.principle import piped
from dualml.report.spread import cell
from dualml.report.style import Figure
from dualml.report.words import Words


def cut_groups(run: Run) -> list[list[str]]:
    """Arms that differ in the cut alone, in the order of the model; one cut each, two cuts and
    more in a group."""
    ran = [a for a in arms.healthy(run, piped(run)) if len(arms.cut(run, a)) == 1 and run.select(a)]
    kept = []
    for group in arms.alike(run, ran, "split.cut"):
        if len({position(run, a) for a in group}) > 1:
            kept.append(sorted(group, key=lambda a: position(run, a)))
    return kept


def position(run: Run, arm: str) -> int:
    """The number of the layer before which it is cut."""
    layers = [name for stage in arms.plan(run, arm).get("stages") or () for name in stage]
    name = arms.cut(run, arm)[0]
    return layers.index(name) if name in layers else 0


def by_hand(run: Run, arm: str) -> bool:
    return bool(arms.split(run, arm)["cut"])


def cut_table(run: Run, words: Words) -> Table | None:
    rows = []
    backends = [
        b for b in run.backends if any(run.select(a, b) for g in cut_groups(run) for a in g)
    ]
    for group in cut_groups(run):
        for arm in group:
            plan = arms.plan(run, arm)
            sizes = [4 * r["elements"] for r in plan.get("ranks") or ()]
            crosses = sum(x["nbytes"] for x in plan.get("links") or ())
            chosen = "hand" if by_hand(run, arm) else arms.split(run, arm)["balance"]
            rows.append(
                [
                    Cell(arm, "code"),
                    Cell(", ".join(arms.cut(run, arm)), "code"),
                    Cell(words(f"splits.cut_by.{chosen}")),
                    number(" · ".join(map(size_of, sizes)) or numbers.NONE),
                    number(size_of(crosses) if crosses else numbers.NONE),
                    *(cell(spent.step(run, arm, b), 1e3) for b in backends),
                    *(_computing(run, arm, b) for b in backends),
                ]
            )
    if not rows:
        return None
    head = heads(words, "arm", "cut_at", "cut_by", "parameters:bytes_ranks")
    head += heads(words, "links_planned:bytes_update")
    for key, unit in (("step", "milliseconds"), ("computing", "ms_ranks")):
        head += [
            Head(words(f"splits.column.{key}", backend=b), words(f"unit.{unit}"), True)
            for b in backends
        ]
    return Table("cuts", words("table.cuts"), head, rows)


def _computing(run: Run, arm: str, backend: str) -> Cell:
    rows = spent.by_rank(run, arm, backend)
    return number(
        " · ".join(numbers.quantity(1e3 * (r["gradient"] + r["update"])) for r in rows)
        or numbers.NONE
    )


def cut_figures(run: Run, words: Words) -> Iterator[Figure]:
    backends = spent.shown(run)
    for number_, group in enumerate(cut_groups(run)):
        if any(spent.step(run, arm, b) for arm in group for b in backends):
            yield _figure(run, words, group, backends, number_)


def _figure(
    run: Run, words: Words, group: Sequence[str], backends: Sequence[str], number_: int
) -> Figure:
    """Lines through the cuts by hand; marks where a balance cut."""
    from matplotlib.lines import Line2D

    name = "cuts" if not number_ else f"cuts-{number_ + 1}"
    at = sorted({(position(run, a), arms.cut(run, a)[0]) for a in group})
    places = {p: k for k, (p, _) in enumerate(at)}
    width = style.WIDTH * 0.72
    with style.canvas(width, 3.4) as made:
        axes = made.subplots()
        for k, backend in enumerate(backends):
            color = PALETTE[k % len(PALETTE)]
            told: dict[int, list[float]] = {}
            for arm in group:
                found = spent.step(run, arm, backend)
                if found is not None:
                    told.setdefault(places[position(run, arm)], []).append(1e3 * found.mean)
            axes.plot(list(told), [min(v) for v in told.values()], "-", color=color, linewidth=1)
            for arm in group:
                found = spent.step(run, arm, backend)
                if found is not None:
                    x, hand = places[position(run, arm)], by_hand(run, arm)
                    fill = color if hand else "white"
                    axes.plot(x, 1e3 * found.mean, "o" if hand else "D", color=color, markersize=6,
                              markerfacecolor=fill)  # fmt: skip
        axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
        balances: dict[int, list[str]] = {}
        for arm in group:
            if not by_hand(run, arm):
                names = balances.setdefault(places[position(run, arm)], [])
                names.append(words(f"splits.cut_by.{arms.split(run, arm)['balance']}"))
        for x, names in balances.items():
            axes.annotate("\n".join(names), (x, 0.03), xycoords=("data", "axes fraction"),
                          fontsize=8, ha="center", va="bottom", color="#555555")  # fmt: skip
        axes.set_xticks(range(len(at)), [layer for _, layer in at])
        axes.margins(x=0.1)
        axes.set_xlabel(words("axis.cut"))
        axes.set_ylabel(words("axis.update_ms"))
        handles = [
            Line2D([], [], color=PALETTE[k % len(PALETTE)], marker="o", label=b)
            for k, b in enumerate(backends)
        ]
        if balances:
            white = words("splits.figure.balanced")
            handles.append(Line2D([], [], color=style.INK, marker="D", markerfacecolor="white",
                                  linewidth=0, label=white))  # fmt: skip
        made.legend(handles=handles, loc="outside upper left", ncols=4)
        text = style.svg(made, name)
    values = [
        f"{arm} {b} {numbers.quantity(1e3 * found.mean)}"
        for arm in group
        for b in backends
        if (found := spent.step(run, arm, b)) is not None
    ]
    caption = words("splits.figure.cuts", model=arms.model(run, group[0]))
    return Figure(name, text, caption, words("alt.update_parts", values=", ".join(values)), width)
