"""The collectives alone: who is fastest where, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from dualml.report import fits, keys, ranks, slowed
from dualml.report.blocks import Block, Cell, Item, Table
from dualml.report.columns import Line as Row
from dualml.report.columns import best, number, table
from dualml.report.crowding import crowding
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.measured import Measured, at_once, crossing, measured
from dualml.report.notes import Notes
from dualml.report.shown import by_name, on_backend, slower
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers
from dualml.words.numbers import ms, nbytes

FEW, LITTLE = "tree", "ring"  # messages, bytes
TICKS = 4
POWERS = [4 * 2**k for k in range(4, 31)]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = measured(run)
    if every:
        first = at_once(run, every)
        yield from crowding(run, words)
        yield _over_fastest(words, first)
        yield from _answer(run, words, first)
        yield _absolute(run, words, every)
        yield from _times(every, words)


# --- figures --------------------------------------------------------------------------------------


def _over_fastest(words: Words, first: Sequence[Measured]) -> Figure:
    """How many times as long as the fastest a strategy takes, by size: a panel for each backend."""
    panels = []
    for m in first:
        timed = {size: m.competing(size) for size in m.sizes}
        marks: list[Mark] = []
        for name in m.exact:
            ratios = {s: t[name] / min(t.values()) for s, t in timed.items() if name in t}
            hints = [f"{nbytes(s)};× {numbers.factor(r)}, {ms(timed[s][name])} ms"
                     for s, r in ratios.items()]  # fmt: skip
            marks.append(Line([*ratios], [*ratios.values()], Owner(series=name), hints=hints))
        panels.append(_panel(m, marks, Axis(words("axis.over_fastest"), "auto", wide=4), words))
    return Figure(
        "fastest", words("figure.fastest"), _alt(first, words), panels,
        keys.strategies(name for m in first for name in m.exact),
        columns=len(panels), share_y="row",
    )  # fmt: skip


def _absolute(run: Run, words: Words, every: Sequence[Measured]) -> Figure:
    """Time against size: a row for each backend and a column for each number of ranks; of one
    number all backends beside each other."""
    seconds = Axis(words("axis.collective_s"), "log")
    panels = {(m.backend, m.n): _panel(m, _times_and_fits(run, m), seconds, words) for m in every}
    sizes = sorted({m.n for m in every})
    places = [(b, n) for b in dict.fromkeys(m.backend for m in every) for n in sizes]
    fitted = [words("figure.fitted")] if run.cost.get("fits") else []
    copy = Key("series", "copy", words("figure.copy"), color="line", stroke="fine-dashes")
    return Figure(
        "collectives", words.sentences([words("figure.collectives"), *fitted]), _alt(every, words),
        [panels.get(place) for place in places],
        [*keys.strategies(name for m in every for name in m.strategies), copy],
        columns=len(sizes) if len(sizes) > 1 else len(places), share_x="all", share_y="all",
    )  # fmt: skip


def _panel(m: Measured, marks: Sequence[Mark], y: Axis, words: Words) -> Panel:
    ticks = [(s, nbytes(s)) for s in m.sizes[:: -(-len(m.sizes) // TICKS)]]
    x = Axis(words("axis.bytes"), "log2", ticks=ticks)
    return Panel(marks, x, y, words("figure.panel", backend=m.backend, n=m.n))


def _times_and_fits(run: Run, m: Measured) -> list[Mark]:
    """Medians with their quartiles, what is fitted to them, and the copy of as many bytes."""
    marks: list[Mark] = []
    growth = m.sizes[-1] / m.sizes[0]
    dense = [4 * round(m.sizes[0] / 4 * growth ** (k / 39)) for k in range(40)]
    for k, name in enumerate(m.strategies):
        owner = Owner(series=name)
        fit = {s: t for s in dense if (t := fits.fitted(run, m.backend, m.n, name, s))}
        if fit:
            marks.append(Line([*fit], [*fit.values()], owner, marker="none", weight="thin"))
        rows = {s: m.rows[name, s] for s in m.sizes if (name, s) in m.rows}
        low, mid, high = ([r[key] for r in rows.values()] for key in ("low", "seconds", "high"))
        hints = [f"{nbytes(s)};{ms(t)} ms" for s, t in zip(rows, mid, strict=True)]
        shift = 1.6 * (k - (len(m.strategies) - 1) / 2)  # quartiles must not hide one another
        marks.append(Line([*rows], mid, owner, low, high, "y", not fit, shift=shift, hints=hints))
    copies = dict(sorted(m.copies.items()))
    return [*marks, Line([*copies], [*copies.values()], Owner(series="copy"))] if copies else marks


def _alt(every: Sequence[Measured], words: Words) -> str:
    """The fastest at the smallest and at the largest size."""
    texts = []
    for m in every:
        best = {s: name for s in (m.sizes[0], m.sizes[-1]) if (name := m.fastest(s)) is not None}
        items = [f"{nbytes(s)} {name} {ms(m.seconds(name, s))} ms" for s, name in best.items()]
        texts.append(f"{m.backend}, n = {m.n}: {', '.join(items)}")
    return words("alt.collectives", fastest="; ".join(texts))


# --- tables ---------------------------------------------------------------------------------------


def _answer(run: Run, words: Words, first: Sequence[Measured]) -> Iterator[Table]:
    """A strategy in each row: time of a short and a long vector, and what one slow node costs."""
    timed = first[0].competing(first[0].sizes[-1])
    names = sorted(timed, key=lambda name: timed[name])
    worst = {(name, m.backend): _worst(run, name, m.backend) for name in names for m in first}
    slow = [m.backend for m in first if any(worst[name, m.backend] for name in names)]
    ends = [(m, size) for m in first for size in (m.sizes[0], m.sizes[-1])]

    def slowdown(place: tuple[str, str]) -> Cell:
        factor, arm = worst[place] or (None, "")
        handicap = ranks.handicap_text(run, arm, words) if arm else ""
        return Cell(numbers.factor(factor), note=handicap)

    rows: list[Row] = [
        [
            name,
            *(best(ms(m.seconds(name, size)), m.fastest(size) == name) for m, size in ends),
            *(slowdown((name, backend)) for backend in slow),
        ]
        for name in names
    ]
    head = [
        *(number(words, f"{m.backend}-{s}", f"{m.backend}, {nbytes(s)}", "milliseconds")
          for m, s in ends),
        *(number(words, f"{b}-slow", words("column.slow_node", backend=b), "relative")
          for b in slow),
    ]  # fmt: skip
    more = words("table.slow_node") if slow else ""
    yield from table(words, "fastest", ["`strategy`", *head], rows, n=first[0].n, more=more)


def _worst(run: Run, strategy: str, backend: str) -> tuple[float, str] | None:
    """The largest slowdown among arms that combine gradients by this strategy, and its arm."""
    known = [
        (factor, arm)
        for arm in slowed.slow_arms(run)
        if ranks.strategy(run, arm) == strategy
        and ranks.plain(run, arm)
        and (factor := slowed.measured(run, arm, backend)) is not None
    ]
    return max(known, default=None)


def _times(every: Sequence[Measured], words: Words) -> Iterator[Table]:
    """Strategies down, sizes across: the median, beneath it the quartiles."""
    sizes = sorted({s for m in every for s in m.sizes})

    def cell(m: Measured, name: str, size: int) -> Cell:
        row = m.rows.get((name, size))
        if row is None:
            return Cell(numbers.NONE)
        quartiles = f"{ms(row['low'])} – {ms(row['high'])}"
        return replace(best(ms(row["seconds"]), m.fastest(size) == name), note=quartiles)

    rows: list[Row] = [
        [name, m.backend, str(m.n), *(cell(m, name, size) for size in sizes)]
        for m in every
        for name in m.strategies
    ]
    head = [number(words, str(s), nbytes(s), "milliseconds") for s in sizes]
    yield from table(words, "collectives", ["`strategy`", "backend", "ranks:count", *head], rows)


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, every = Notes(words, "collectives", "table-fastest"), measured(run)
    if every:
        _at_ends(notes, words, at_once(run, every))
    notes.about("figure-collectives")
    for m in every:
        _ranges(notes, words, m)
        _crossover(notes, run, m)
    # Threads that hand over pointers are no framework to compare with.
    for a, b in combinations([m for m in every if not m.threads], 2):
        if a.n == b.n:
            _backends(notes, a, b)
    return notes


def _at_ends(notes: Notes, words: Words, first: Sequence[Measured]) -> None:
    """The fastest for a short and for a long vector, of all backends at once."""
    items = []
    for end in (0, -1):
        texts: dict[str, list[str]] = {}
        for m in first:
            timed, name = m.competing(m.sizes[end]), m.fastest(m.sizes[end])
            if name is not None and len(timed) > 1:
                texts.setdefault(name, []).append(on_backend(words, m.backend, timed[name]))
        if texts:
            size = nbytes(first[0].sizes[end])
            items.append(words("say.collectives.end", size=size, values=by_name(words, texts)))
    if items:
        notes.say("answer", n=first[0].n, values=words.semicolons(items))


def _ranges(notes: Notes, words: Words, m: Measured) -> None:
    """Which strategy is fastest from which size to which, and how clearly."""
    ranges, here = m.ranges(), {"backend": m.backend, "n": m.n}
    if not ranges or len(m.competing(m.sizes[0])) < 2:
        return
    items = [
        words(f"say.collectives.{'at' if low == high else 'range'}", strategy=name,
              first=nbytes(low), last=nbytes(high))
        for name, low, high in ranges
    ]  # fmt: skip
    notes.say("fastest", **here, values=words.semicolons(items))
    if near := m.close():
        notes.warn("close", near, **here, k=near, of=len(m.sizes))
    size, best = m.sizes[-1], ranges[-1][0]
    copy, seconds = m.copies.get(size), m.seconds(best, size)
    if copy and seconds:
        times = numbers.factor(seconds / copy)
        notes.say("copy", **here, strategy=best, size=nbytes(size), times=times)


def _crossover(notes: Notes, run: Run, m: Measured) -> None:
    """Few messages against few bytes."""
    here = (run, m.backend, m.n)
    measured = crossing(m.sizes, *(partial(m.seconds, name) for name in (FEW, LITTLE)))
    fitted = crossing(POWERS, *(partial(fits.fitted, *here, name) for name in (FEW, LITTLE)))
    for key, ends in (("crossover", measured), ("crossover_fit", fitted)):
        if ends is not None:
            low, high = map(nbytes, ends)
            notes.say(key, backend=m.backend, n=m.n, few=FEW, little=LITTLE, low=low, high=high)


def _backends(notes: Notes, a: Measured, b: Measured) -> None:
    """The ratio of times over strategies and sizes."""
    ratios = {
        place: float(b.rows[place]["seconds"]) / float(row["seconds"])
        for place, row in a.rows.items()
        if place in b.rows and row["seconds"] and b.rows[place]["seconds"]
    }
    if ratios:
        texts = slower(a.backend, b.backend, ratios, lambda at: f"{at[0]}, {nbytes(at[1])}")
        notes.say("backends", n=a.n, **texts)


TOPIC = Topic("collectives", 200, evidence, findings, lambda run: 60 if measured(run) else 0)
