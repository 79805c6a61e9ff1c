"""ZeRO: memory of ranks that shard state, gradients and weights, compared with the closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import keys
from dualml.report.blocks import Block, Cell, Column, Item
from dualml.report.closed_memory import KNOWN, MIB
from dualml.report.columns import Row, number, table
from dualml.report.figure import Axis, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.sharing import Sharing, about, sharings, verdict
from dualml.report.shown import figure, several, stacked
from dualml.report.topics import Topic
from dualml.report.topics.device_memory import PARTS
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Name of the series of values from the closed form.
CLOSED = "closed"


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Yield figure and table of the arms with the most ranks, then of all arms."""
    rows = shown(run)
    most = [r for r in rows if r.n == rows[-1].n]
    for name, each in (("zero", most), ("zero_all", rows)):
        if any(r.together for r in each):
            yield _figure(run, words, each, name.removeprefix("zero"))
        yield from _table(words, name, each)


def shown(run: Run) -> list[Sharing]:
    """Return the sharding arms without those that use an all-reduce: same memory, more traffic."""
    return [r for r in sharings(run) if not r.wasteful]


def _table(words: Words, name: str, rows: Sequence[Sharing]) -> Iterator[Block]:
    """Yield a table with a row per arm; backends with equal counts share a row."""
    parts = [number(words, part, words(f"device_memory.{part}"), "memory") for part in PARTS]
    head: list[str | Column] = ["method", "backend", "ranks:count", "shared_out"]
    head += [*parts[: len(KNOWN)], "together:memory", parts[-1], "verdict"]
    alike = dict[tuple[object, ...], list[Sharing]]()
    for r in rows:
        kept = r.held and tuple(r.held.cell(part) for part in (*KNOWN, "buckets"))
        alike.setdefault((r.arm, kept, bool(r.way.trials)), []).append(r)
    yield from table(words, name, head, (_row(same, words) for same in alike.values()))


def _row(same: Sequence[Sharing], words: Words) -> Row:
    first, *_ = same
    kept = [first.held and first.held.cell(part) for part in (*KNOWN, "buckets")]
    form = first.held and first.held.form
    whole = Cell(numbers.quantity(first.together / MIB if first.together else None),
                 note=form.text if form else "")  # fmt: skip
    return [
        Cell(first.way.title(words), note=first.arm), words.join([r.backend for r in same]),
        first.n, first.shares(words) or None, *kept[:-1], whole, kept[-1], verdict(same, words),
    ]  # fmt: skip


def _figure(run: Run, words: Words, rows: Sequence[Sharing], suffix: str) -> Figure:
    """Return a bar per arm, for the rank that holds most of each component, with a mark at the
    closed form; a panel per backend."""
    backends = [b for b in run.backends if any(r.backend == b and r.together for r in rows)]
    panels = []
    for backend in backends:
        own = [r for r in rows if r.backend == backend and r.together]
        marks = list[Mark]()
        for y, r in enumerate(own):
            parts = {part: (r.most(part) or 0) / MIB for part in KNOWN}
            marks += stacked(y, parts, text=numbers.quantity(sum(parts.values())))
        known = [(y, r.closed / MIB) for y, r in enumerate(own) if r.closed]
        marks.append(Line([x for _, x in known], [y for y, _ in known], Owner(series=CLOSED),
                          joined=False))  # fmt: skip
        down = Axis(names=[r.arm for r in own], grid=False)
        panels.append(Panel(marks, Axis(words("axis.kept_bytes"), low=0), down, backend,
                            height=22.0 * len(own)))  # fmt: skip
    look = keys.series(words, "device_memory", {part: PARTS[part] for part in KNOWN})
    mark = Key("series", CLOSED, words("zero.closed"), color="black", marker="diamond", hollow=True)
    said = ", ".join(f"{r.arm} {r.backend} {numbers.quantity(r.together / MIB)}"
                     for r in rows if r.together)  # fmt: skip
    return figure(words, "zero", panels, [*look, mark], {"values": said}, suffix=suffix,
                  columns=len(panels), share_x="all")  # fmt: skip


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, rows = Notes(words, "zero", "figure-zero_all"), shown(run)
    for backend in run.backends:
        own = [r for r in rows if r.own and r.backend == backend and r.precision == "fp32"]
        for n in dict.fromkeys(r.n for r in own if r.shared):
            whole = next((r.together for r in own if r.n == n and not r.shared), None)
            shares = {r.arm: r.together / whole for r in own
                      if whole and r.n == n and r.shared and r.together}  # fmt: skip
            if whole and shares:
                notes.share(backend, "held", n=n, whole=whole, shares=shares)
    notes.close()
    judged = [r.held.form for r in rows if r.own and r.held and r.held.form]
    if judged:
        exact = sum(not form.off for form in judged)
        notes.say("exact", len(judged), k=exact, n=len(judged))
    notes.about("table-zero")
    for backend in run.backends:
        _besides(notes, [r for r in rows if r.backend == backend and len(r.shared) == len(KNOWN)])
    equal = [r.way.verdict == "equal" for r in sharings(run) if r.way.verdict and r.n > 1]
    if equal:
        notes.say("equal", len(equal), k=sum(equal), n=len(equal))
    absent = [r for r in rows if not r.way.trials]
    if absent:
        arms = [f"{r.arm} ({r.backend})" for r in absent]
        notes.warn("absent", len(absent), n=len(absent), arms=several(arms, words))
    return notes


def _besides(notes: Notes, rows: Sequence[Sharing]) -> None:
    """Add the transient buffers of arms that shard everything, engines compared with dualml."""
    known = {n: [r for r in rows if r.n == n and r.most("buckets") is not None]
             for n in dict.fromkeys(r.n for r in rows)}  # fmt: skip
    for n, each in known.items():
        if any(r.own for r in each) and any(not r.own for r in each):
            values = {r.arm: r.most("buckets") for r in each}
            notes.say("buckets", backend=each[0].backend, n=n, values=values)


TOPIC = Topic("zero", 11, evidence, findings, leads=lambda run: 95, when=about)
