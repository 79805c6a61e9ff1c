"""Present values of several arms and backends: bars, parts of sentences, extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any, TypeVar

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Bar, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.results import ArmResult

K = TypeVar("K")


def build_figure(
    words: Messages,
    key: str,
    panels: Sequence[Panel | None],
    keys: Sequence[LegendEntry],
    values: Mapping[str, object],
    *,
    more: Iterable[str] = (),
    **fields: Any,
) -> Figure:
    """Return a figure whose caption is the message ``figure.KEY``, followed by ``more``, and whose
    alternative text is ``alt.KEY``, both formatted with the values.

    Args:
        fields: other fields of `Figure`; its ``name`` is the key, and all panels are in one row,
            unless they are given.
    """
    caption = words.join_sentences([words(f"figure.{key}", **values), *more])
    alt = words(f"alt.{key}", **values)
    named = {"name": key, "columns": len(panels), **fields}
    return Figure(caption=caption, alt=alt, panels=panels, entries=keys, **named)


def interval_line(
    x: Sequence[float],
    means: Sequence[MeanInterval],
    owner: SeriesId,
    factor: float = 1.0,
    **look: Any,
) -> LineMark:
    """Return a line through means over seeds, multiplied by ``factor``, with their intervals as
    error bars if any is known. ``look`` sets other fields of `LineMark`."""
    known = any(s.low is not None for s in means)
    low, high = ([factor * s.bounds[k] for s in means] if known else None for k in (0, 1))
    return LineMark(x, [factor * s.mean for s in means], owner, low, high, bars="y", **look)


def shorten_list(names: Sequence[str], words: Messages, most: int = 12) -> list[str]:
    """Return all names if there are at most ``most`` + 1; else the first ``most`` and the number of
    others as the last item."""
    if len(names) <= most + 1:
        return list(names)
    return [*names[:most], words.count("more", len(names) - most)]


def mean_seeds_note(run: RunData, words: Messages) -> str:
    """Return the note that values are means over the seeds."""
    return words.plural("figure.mean_seeds", len(run.seeds), n=len(run.seeds))


def stacked_bars(
    y: float,
    parts: Mapping[str, float],
    scale: float = 1.0,
    text: str = "",
    height: float = 0.68,
    suffix: str = "",
) -> Iterator[Bar]:
    """Yield the parts of a time (name → seconds), multiplied by ``scale``, as adjacent bars in row
    ``y``, each a series named by the part and ``suffix``; ``text`` stands at the end."""
    left = 0.0
    for part, seconds in parts.items():
        yield Bar(y, scale * seconds, SeriesId(series=part + suffix), left, height)
        left += scale * seconds
    if text:
        yield Bar(y, 0.0, left=left, height=height, text=text)


P = TypeVar("P", bound=ArmResult)


def bar_panels(
    records: Sequence[P],
    backends: Iterable[str],
    label: str,
    bars: Callable[[float, P], Iterable[Mark]],
    more: Callable[[Sequence[P]], Iterable[Mark]] = lambda _: (),
) -> list[Panel]:
    """Return a panel per backend with a row per record of that backend, labelled by its arm.

    Args:
        records: the results to show.
        backends: the backends, in the order of the panels.
        label: label of the x axis.
        bars: (row, from 0; record) → the marks of the row.
        more: records of the backend → further marks of its panel.
    """
    panels = []
    for backend in backends:
        own = [r for r in records if r.backend == backend]
        marks = [*(mark for y, r in enumerate(own) for mark in bars(y, r)), *more(own)]
        down = Axis(names=[r.arm for r in own], grid=False)
        panels.append(Panel(marks, Axis(label, low=0), down, backend, height=22.0 * len(own)))
    return panels


def stacked_panels(
    names: Sequence[str],
    backends: Iterable[str],
    label: str,
    parts: Callable[[str, str], Mapping[str, float] | None],
    text: Callable[[str, str], str],
    pixels: float,
) -> list[Panel]:
    """Return a panel per backend with a row of ``pixels`` height per arm of ``names``; a row
    without parts is empty.

    Args:
        names: the arms.
        backends: the backends, in the order of the panels.
        label: label of the x axis.
        parts: (arm, backend) → part → value, drawn as adjacent bars; None or empty: no bars.
        text: (arm, backend) → text at the end of the bars.
        pixels: height of a row.
    """
    panels = []
    for backend in backends:
        known = ((y, arm, parts(arm, backend)) for y, arm in enumerate(names))
        bars = (stacked_bars(y, each, text=text(arm, backend)) for y, arm, each in known if each)
        down = Axis(names=names, grid=False)
        height = pixels * len(names)
        panels.append(Panel([*chain(*bars)], Axis(label, low=0), down, backend, height=height))
    return panels


def closed_form_mark(values: Iterable[float | None]) -> LineMark:
    """Return the marks at values of the closed form, one per row of bars (`legend.closed_form`);
    none for None and 0."""
    known = [(y, x) for y, x in enumerate(values) if x]
    owner = SeriesId(series="closed")
    return LineMark([x for _, x in known], [y for y, _ in known], owner, joined=False)


def join_by_name(words: Messages, texts: Mapping[str, Sequence[str]]) -> str:
    """Return names with their texts, e.g. ``ring (torch, 7 ms; mindspore, 40 ms) and tree (numpy, 1
    ms)``."""
    return words.join(
        [words("list.beside", name=n, values=words.semicolons(each)) for n, each in texts.items()]
    )


def format_on_backend(words: Messages, backend: str, seconds: float) -> str:
    """Return a time on a backend as text, e.g. ``torch, 7 ms``."""
    return words("value.on_backend", backend=backend, ms=numbers.ms(seconds))


def format_values(
    arms: Iterable[str], backends: Sequence[str], value: Callable[[str, str], str]
) -> str:
    """Return the values of a figure, ``value(arm, backend)``, as text, e.g. ``ring torch 1.2, ring
    mindspore 1.3``, without those that are a dash; a dash if all are."""
    places = [(arm, backend) for arm in arms for backend in backends]
    known = [(place, text) for place in places if (text := value(*place)) != numbers.NO_VALUE]
    return (
        ", ".join(f"{arm} {backend} {text}" for (arm, backend), text in known) or numbers.NO_VALUE
    )


def format_extremes(values: Mapping[K, float], place: Callable[[K], str]) -> dict[str, str]:
    """Return the smallest, the median and the largest value, as factors, in texts ``low``,
    ``typical`` and ``high``, and under ``low_at`` and ``high_at`` the texts that ``place`` returns
    for the keys of the extremes. There must be a value."""
    ends = {
        "low": min(values, key=lambda at: values[at]),
        "high": max(values, key=lambda at: values[at]),
    }
    return {
        "typical": numbers.factor(median(values.values())),
        **{end: numbers.factor(values[at]) for end, at in ends.items()},
        **{f"{end}_at": place(at) for end, at in ends.items()},
    }


def compare_speed(
    a: str, b: str, ratios: Mapping[K, float], place: Callable[[K], str]
) -> dict[str, str]:
    """Return which of ``a`` and ``b`` is slower by the median of the ratios b / a of their times
    (``slow`` and ``fast``), and the `format_extremes` of how many times as long the slower one
    takes. There must be a ratio."""
    up = median(ratios.values()) >= 1
    times = {at: ratio if up else 1 / ratio for at, ratio in ratios.items()}
    return {"slow": b if up else a, "fast": a if up else b, **format_extremes(times, place)}


def summarize_predictions(
    ratios: Mapping[K, float], place: Callable[[K], str]
) -> dict[str, object]:
    """Summarise ratios of predicted to measured values: how many there are (``k``), how many lie
    within a factor of two (``inside``), the median (``typical``), and the one furthest from 1 in
    either direction (``worst``) with the text that ``place`` returns for its key (``at``). There
    must be a ratio; none may be 0."""
    at = max(ratios, key=lambda key: max(ratios[key], 1 / ratios[key]))
    return {
        "k": len(ratios),
        "inside": sum(0.5 <= ratio <= 2 for ratio in ratios.values()),
        "typical": numbers.factor(median(ratios.values())),
        "worst": numbers.factor(ratios[at]),
        "at": place(at),
    }
