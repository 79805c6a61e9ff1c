"""Collectives measured alone: which strategy is fastest at which size, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from dualml.common.words import Messages, numbers
from dualml.common.words.numbers import ms, nbytes, times
from dualml.experiment.store.run import RunData
from dualml.report import fits, legend, ranks
from dualml.report.blocks import Block, Cell, Table, Tone
from dualml.report.collective_timing import (
    CollectiveMeasurements,
    collective_measurements,
    find_crossover,
    uncrowded_measurements,
)
from dualml.report.columns import UNITS, highlight_best, number, table
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.measures import drop_missing
from dualml.report.notes import Notes
from dualml.report.presentation import compare_speed, format_on_backend, join_by_name
from dualml.report.scaling_families import crowding_notices
from dualml.report.straggler import straggler_effects
from dualml.report.topics import ReportSection

FEW_MESSAGES, FEW_BYTES = "tree", "ring"  # strategies with few messages and with few bytes
TICKS = 4
POWERS = [4 * 2**k for k in range(4, 31)]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, times relative to the fastest strategy, the fastest by
    size, all times, and bandwidths. The run must have measured collectives."""
    every = collective_measurements(run)
    first = uncrowded_measurements(run, every)
    yield from crowding_notices(run, words)
    yield _relative_figure(words, first)
    yield from _fastest_table(run, words, first)
    yield _times_figure(run, words, every)
    yield from _times_table(every, words)
    yield from _bandwidths_table(every, words)


# --- figures --------------------------------------------------------------------------------------


def _relative_figure(words: Messages, first: Sequence[CollectiveMeasurements]) -> Figure:
    """Return a figure of each strategy's time relative to the fastest, by size: a panel per
    backend."""
    panels = []
    for m in first:
        marks: list[Mark] = []
        for name in m.exact:
            timed = drop_missing({size: m.seconds(name, size) for size in m.sizes})
            ratios = {s: t / min(m.competing(s).values()) for s, t in timed.items()}
            hints = [f"{nbytes(s)};{times(r)}, {ms(timed[s])} ms" for s, r in ratios.items()]
            marks.append(
                LineMark([*ratios], [*ratios.values()], SeriesId(series=name), hints=hints)
            )
        panels.append(
            _panel(m, marks, Axis(words("axis.over_fastest"), "auto", log_factor=4), words)
        )
    series = legend.strategies(name for m in first for name in m.exact)
    return Figure(
        "fastest",
        words("figure.fastest"),
        _alt(first, words),
        panels,
        series,
        columns=len(panels),
        share_y="row",
    )


def _times_figure(run: RunData, words: Messages, every: Sequence[CollectiveMeasurements]) -> Figure:
    """Return a figure of time against size: a row per backend and a column per number of ranks;
    with one number all backends side by side."""
    seconds = Axis(words("axis.collective_s"), "log")
    panels = {(m.backend, m.n): _panel(m, _times_and_fits(run, m), seconds, words) for m in every}
    sizes = sorted({m.n for m in every})
    places = [*product(dict.fromkeys(m.backend for m in every), sizes)]
    fitted = [words("figure.fitted")] if run.cost.get("fits") else []
    copy = LegendEntry("series", "copy", words("figure.copy"), color="line", stroke="fine-dashes")
    return Figure(
        "collectives",
        words.join_sentences([words("figure.collectives"), *fitted]),
        _alt(every, words),
        [panels.get(place) for place in places],
        [*legend.strategies(name for m in every for name in m.strategies), copy],
        columns=len(sizes) if len(sizes) > 1 else len(places),
        share_x="all",
        share_y="all",
    )


def _panel(m: CollectiveMeasurements, marks: Sequence[Mark], y: Axis, words: Messages) -> Panel:
    """Return the panel of one backend and number of ranks, with bytes on a logarithmic x axis."""
    ticks = [(s, nbytes(s)) for s in m.sizes[:: -(-len(m.sizes) // TICKS)]]
    x = Axis(words("axis.bytes"), "log2", ticks=ticks)
    return Panel(marks, x, y, words("figure.panel", backend=m.backend, n=m.n))


def _times_and_fits(run: RunData, m: CollectiveMeasurements) -> list[Mark]:
    """Return the marks of a panel: medians with their quartiles, the fitted curves, and the copy of
    as many bytes in memory."""
    marks: list[Mark] = []
    growth = m.sizes[-1] / m.sizes[0]
    dense = [4 * round(m.sizes[0] / 4 * growth ** (k / 39)) for k in range(40)]
    for k, name in enumerate(m.strategies):
        owner = SeriesId(series=name)
        fit = {s: t for s in dense if (t := fits.predict_seconds(run, m.backend, m.n, name, s))}
        if fit:
            marks.append(LineMark([*fit], [*fit.values()], owner, marker="none", weight="thin"))
        rows = {s: m.rows[name, s] for s in m.sizes if (name, s) in m.rows}
        low, mid, high = ([r[key] for r in rows.values()] for key in ("low", "seconds", "high"))
        hints = [f"{nbytes(s)};{ms(t)} ms" for s, t in zip(rows, mid, strict=True)]
        shift = 1.6 * (k - (len(m.strategies) - 1) / 2)  # so that quartiles do not overlap
        marks.append(
            LineMark([*rows], mid, owner, low, high, "y", not fit, shift=shift, hints=hints)
        )
    if m.copies:
        marks.append(LineMark([*m.copies], [*m.copies.values()], SeriesId(series="copy")))
    return marks


def _alt(every: Sequence[CollectiveMeasurements], words: Messages) -> str:
    """Return the fastest strategy at the smallest and at the largest size as text."""
    texts = []
    for m in every:
        best = {size: name for size in m.ends if (name := m.fastest(size)) is not None}
        items = [f"{nbytes(s)} {name} {ms(m.seconds(name, s))} ms" for s, name in best.items()]
        texts.append(f"{m.backend}, n = {m.n}: {', '.join(items)}")
    return words("alt.collectives", fastest="; ".join(texts))


# --- tables ---------------------------------------------------------------------------------------


def _fastest_table(
    run: RunData, words: Messages, first: Sequence[CollectiveMeasurements]
) -> Iterator[Table]:
    """Yield a table with a row per strategy: the time of a short and of a long vector, and the
    largest slowdown by a straggler."""
    names = first[0].competing(first[0].ends[1])
    backends = [m.backend for m in first]
    worst = {b: {name: _worst_slowdown(run, words, name, b) for name in names} for b in backends}
    slow = [backend for backend, cells in worst.items() if any(cells.values())]
    ends = [(m, size) for m in first for size in m.ends]
    rows = [
        [
            name,
            *(
                highlight_best(ms(m.seconds(name, size)), m.fastest(size) == name)
                for m, size in ends
            ),
            *(worst[backend][name] for backend in slow),
        ]
        for name in names
    ]
    head = [
        *(
            number(words, f"{m.backend}-{s}", f"{m.backend}, {nbytes(s)}", "milliseconds")
            for m, s in ends
        ),
        *(
            number(words, f"{b}-slow", words("column.slow_node", backend=b), "relative")
            for b in slow
        ),
    ]
    more = words("table.slow_node") if slow else ""
    yield from table(words, "fastest", ["`strategy`", *head], rows, n=first[0].n, more=more)


def _worst_slowdown(run: RunData, words: Messages, strategy: str, backend: str) -> Cell | None:
    """Return the cell of the largest slowdown by a straggler among arms that combine gradients by
    this strategy on this backend, None without one."""
    factors = [
        (s.factor, s.arm)
        for s in straggler_effects(run)
        if s.factor is not None
        and s.backend == backend
        and ranks.strategy(run, s.arm) == strategy
        and ranks.uses_default_aggregation(run, s.arm)
    ]
    if not factors:
        return None
    factor, arm = max(factors)
    return Cell(numbers.factor(factor), note=ranks.handicap_text(run, arm, words))


def _times_table(every: Sequence[CollectiveMeasurements], words: Messages) -> Iterator[Table]:
    """Yield the table of median milliseconds of a call by strategy and size, with the quartiles
    below."""

    def cell(m: CollectiveMeasurements, name: str, size: int) -> Cell | None:
        row = m.rows.get((name, size))
        if row is None:
            return None
        tone: Tone = "good" if m.fastest(size) == name else ""
        return Cell(ms(row["seconds"]), tone, f"{ms(row['low'])} – {ms(row['high'])}")

    yield from _table_by_size(every, words, "collectives", "milliseconds", cell)


def _bandwidths_table(every: Sequence[CollectiveMeasurements], words: Messages) -> Iterator[Table]:
    """Yield the table of bus bandwidths of each all-reduce, with the algorithm bandwidths below."""
    show = UNITS["gb_per_second"]

    def cell(m: CollectiveMeasurements, name: str, size: int) -> Cell | None:
        rates = m.bandwidths(name, size)
        if rates is None:
            return None
        tone: Tone = "good" if m.fastest(size) == name else ""
        return Cell(show(rates.busbw), tone, show(rates.algbw))

    exact = [
        replace(m, rows={at: row for at, row in m.rows.items() if at[0] in m.exact}) for m in every
    ]
    yield from _table_by_size(exact, words, "bandwidths", "gb_per_second", cell)


def _table_by_size(
    every: Sequence[CollectiveMeasurements],
    words: Messages,
    name: str,
    unit: str,
    cell: Callable[[CollectiveMeasurements, str, int], Cell | None],
) -> Iterator[Table]:
    """Yield a table with a row per strategy and measurements and a column per size in bytes; the
    cells are ``cell(measurements, strategy, size)``."""
    sizes = sorted({s for m in every for s in m.sizes})
    rows = [
        [strategy, m.backend, m.n, *(cell(m, strategy, size) for size in sizes)]
        for m in every
        for strategy in m.strategies
    ]
    head = [number(words, str(s), nbytes(s), unit) for s in sizes]
    yield from table(words, name, ["`strategy`", "backend", "ranks:count", *head], rows)


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the fastest strategies by size, measured and fitted crossovers, and the speeds of the
    backends compared."""
    words, every = notes.words, collective_measurements(run)
    _add_fastest_at_ends(notes, words, uncrowded_measurements(run, every))
    notes.set_anchor("figure-collectives")
    for m in every:
        _add_ranges(notes, words, m)
        here = (run, m.backend, m.n)
        seen = find_crossover(
            m.sizes, *(partial(m.seconds, name) for name in (FEW_MESSAGES, FEW_BYTES))
        )
        fitted = find_crossover(
            POWERS,
            *(partial(fits.predict_seconds, *here, name) for name in (FEW_MESSAGES, FEW_BYTES)),
        )
        for key, ends in (("crossover", seen), ("crossover_fit", fitted)):
            if ends is not None:
                notes.add(key, m=m, few=FEW_MESSAGES, little=FEW_BYTES, ends=ends)
    # Threads that pass pointers are not comparable with a framework.
    for a, b in combinations([m for m in every if not m.threads], 2):
        ratios = {
            f"{at[0]}, {nbytes(at[1])}": float(b.rows[at]["seconds"]) / float(row["seconds"])
            for at, row in a.rows.items()
            if a.n == b.n and at in b.rows and row["seconds"] and b.rows[at]["seconds"]
        }
        if ratios:
            notes.add("backends", n=a.n, **compare_speed(a.backend, b.backend, ratios, str))


def _add_fastest_at_ends(
    notes: Notes, words: Messages, first: Sequence[CollectiveMeasurements]
) -> None:
    """Add the fastest strategies for a short and for a long vector, for all backends together."""
    items = []
    for end in (0, 1):
        texts: dict[str, list[str]] = {}
        for m in first:
            timed = m.competing(m.ends[end])
            if len(timed) > 1:
                name, seconds = next(iter(timed.items()))
                texts.setdefault(name, []).append(format_on_backend(words, m.backend, seconds))
        if texts:
            size = first[0].ends[end]
            items.append(words("say.collectives.end", size=size, values=join_by_name(words, texts)))
    if items:
        notes.add("answer", n=first[0].n, values=items)


def _add_ranges(notes: Notes, words: Messages, m: CollectiveMeasurements) -> None:
    """Add which strategy is fastest in which range of sizes, and how clearly."""
    ranges = m.ranges()
    if not ranges or len(m.competing(m.ends[0])) < 2:
        return
    items = [
        words(
            f"say.collectives.{'at' if low == high else 'range'}",
            strategy=name,
            first=low,
            last=high,
        )
        for name, low, high in ranges
    ]
    notes.add("fastest", m=m, values=items)
    if near := m.count_close_sizes():
        notes.add_warning("close", near, m=m, k=near, of=len(m.sizes))
    best, size = ranges[-1][0], m.ends[1]
    copy, seconds = m.copies.get(size), m.seconds(best, size)
    if copy and seconds:
        notes.add("copy", m=m, strategy=best, times=seconds / copy)


TOPIC = ReportSection(
    "collectives",
    200,
    evidence,
    findings,
    "table-fastest",
    priority=lambda run: 60,
    when=collective_measurements,
)
