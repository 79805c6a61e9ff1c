"""Legend entries that figures share, so that an arm, framework or strategy looks the same
everywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import cycle

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.draw.palette import CYCLE, SERIES
from dualml.report.draw.text import MARKERS
from dualml.report.figure import Kind, LegendEntry

FRAMEWORKS = {"torch": "wide", "mindspore": "dashes", "numpy": "dots"}
SPARE = ("dash-dot", "hair", "long")
#: Colours of aggregation strategies and schemes, by their position among those that are known.
STRATEGY_COLORS = (*CYCLE, "black", "brick", "plum", "navy")


def colors(run: RunData) -> dict[str, str]:
    """Return arm → colour, by its position in its group: arms of different groups may share one, as
    do arms ten places apart."""
    return {
        arm: CYCLE[k % len(CYCLE)] for arms in run.groups().values() for k, arm in enumerate(arms)
    }


def arms(run: RunData, names: Iterable[str]) -> list[LegendEntry]:
    """Return the legend entries of arms in the colours of `colors`, by position in the group;
    figures with entries from `distinct_colors` may colour the same arms otherwise. No colour for an
    unknown arm."""
    known = colors(run)
    return [LegendEntry("arm", name, color=known.get(name, "")) for name in names]


def distinct_colors(names: Sequence[str], base: str = "", kind: Kind = "arm") -> list[LegendEntry]:
    """Return legend entries coloured by position among ``names`` in ten colours, which then repeat,
    and black for ``base``, the name that others are compared with."""
    others = [name for name in names if name != base]
    known = {name: CYCLE[k % len(CYCLE)] for k, name in enumerate(others)}
    return [LegendEntry(kind, name, color=known.get(name, "black")) for name in names]


def backends(run: RunData, names: Iterable[str] | None = None) -> list[LegendEntry]:
    """Return the legend entries of backends (None: all of the run), each with the stroke of its
    framework; further backends of a framework get a spare stroke."""
    strokes: dict[str, str] = {}
    for k, backend in enumerate(run.backends):
        stroke = FRAMEWORKS.get(run.framework(backend), "")
        free = not stroke or stroke in strokes.values()
        strokes[backend] = SPARE[k % len(SPARE)] if free else stroke
    shown = run.backends if names is None else names
    return [LegendEntry("backend", b, stroke=strokes.get(b, SPARE[0])) for b in shown]


def colored_backends(names: Sequence[str], marker: str = "circle") -> list[LegendEntry]:
    """Return legend entries that give each backend a colour, by its position, and the same marker,
    for points of figures in which arms have no colour."""
    return [
        LegendEntry("backend", b, color=CYCLE[k % len(CYCLE)], marker=marker)
        for k, b in enumerate(names)
    ]


def strategies(names: Iterable[str]) -> list[LegendEntry]:
    """Return the legend entries of aggregation strategies, each once, in the order of all known
    strategies: the same colour and marker everywhere. Names that this version does not know come
    last, by name. Those for which no colour is left take one that no other name here has."""
    from dualml.parallel.aggregation import SCHEMES, STRATEGIES

    used = set(names)
    known = [*STRATEGIES, *SCHEMES]
    order = [*known, *sorted(used - set(known))]
    shown = [name for name in order if name in used]
    colors = dict(zip(order, STRATEGY_COLORS, strict=False))
    free = [c for c in STRATEGY_COLORS if c not in {colors.get(name) for name in shown}]
    late = (name for name in shown if name not in colors)
    colors |= dict(zip(late, cycle(free or STRATEGY_COLORS), strict=False))
    return [
        LegendEntry(
            "series", name, color=colors[name], marker=MARKERS[order.index(name) % len(MARKERS)]
        )
        for name in shown
    ]


def without_markers(keys: Iterable[LegendEntry]) -> list[LegendEntry]:
    """Return copies of legend entries without markers, for curves of many points."""
    return [replace(key, marker="") for key in keys]


def series(
    words: Messages, prefix: str, kind: str, names: Collection[str] | None = None
) -> list[LegendEntry]:
    """Return the legend entries of the series in `palette.SERIES` under ``kind`` (only of those in
    ``names``, if they are given), labelled by the messages ``PREFIX.NAME``."""
    return [
        LegendEntry("series", name, words(f"{prefix}.{name}"), color=color)
        for name, color in SERIES[kind].items()
        if names is None or name in names
    ]


def closed_form(words: Messages) -> LegendEntry:
    """Return the legend entry of the marks at values of the closed form
    (`presentation.closed_form_mark`)."""
    label = words("zero.closed")
    return LegendEntry("series", "closed", label, color="black", marker="diamond", hollow=True)


def parts(words: Messages) -> list[LegendEntry]:
    """Return the legend entries of the parts of an update: computing, waiting, transferring."""
    return series(words, "part_of_update", "rank_update")


def fine_parts(words: Messages) -> list[LegendEntry]:
    """Return the legend entries of the parts of an update with gradient and parameter update
    separated."""
    return series(words, "scaling.part", "update")
