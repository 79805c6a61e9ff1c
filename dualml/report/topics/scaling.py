"""How much faster several ranks are than one, where every rank has cores of its own, and why not
more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.parity.statistics import ENOUGH
from dualml.report import families, keys, ranks
from dualml.report.blocks import Block, Card, Cell, Formula, Item, Notice, Prose, Table
from dualml.report.columns import Line as Row
from dualml.report.columns import table
from dualml.report.families import STRONG, WEAK, Family
from dualml.report.figure import Axis, Bar, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.scaling import (
    OVERSUBSCRIBED,
    PARTS,
    UNKNOWN,
    Point,
    all_points,
    name,
    notices,
    places,
    reason,
)
from dualml.report.spread import interval
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Speed-up S and efficiency E of n ranks, and what is to be expected of them.
FORMULAS = {
    STRONG: (
        r"S_n = \frac{T_1}{T_n} \quad E_n = \frac{S_n}{n}",
        r"A_n = \frac{T_1}{u + \frac{T_1 - u}{n}} \quad A_n^c = \frac{T_1}{u + \frac{T_1 - u}{n} "
        r"+ c_n}",
    ),
    WEAK: (
        r"S_n = \frac{n \, T_1}{T_n} \quad E_n = \frac{S_n}{n} = \frac{T_1}{T_n}",
        r"G_n = n \quad G_n^c = \frac{n \, T_1}{T_1 + c_n}",
    ),
}
SOURCES = {
    STRONG: "Amdahl 1967, Validity of the single processor approach to achieving large scale "
    "computing capabilities, AFIPS",
    WEAK: "Gustafson 1988, Reevaluating Amdahl's law, CACM 31(5)",
}


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Speed-up first, in a figure and a table; then where the time goes, times and throughput."""
    points = all_points(run)
    if not points:
        return
    yield from (Notice(text) for text in notices(run, words))
    yield from _cards(run, words)
    shown = [p for p in points if p.backend in ranks.frameworks(run)]
    if any(p.speedup for p in shown):
        yield _speedup_figure(run, words, shown)
    yield from _speedup_table(points, words)
    if any(p.parts for p in shown):
        yield _parts_figure(run, words, shown)
    yield from _times_table(points, words)


def _cards(run: Run, words: Words) -> Iterator[Card]:
    """The formulas of the kinds of scaling that this run has."""
    every = families.families(run)
    for kind, formulas in FORMULAS.items():
        arms = dict.fromkeys(a for f in every if f.kind == kind for a in (f.base, *f.arms))
        if arms:
            colon = words("list.colon")
            yield Card(
                words(f"scaling.{kind}"),
                [
                    *(Formula(latex) for latex in formulas),
                    Prose(words(f"scaling.does.{kind}")),
                    Prose(words("page.arms") + colon + ", ".join(arms), small=True),
                    Prose(words("page.source") + colon + SOURCES[kind], small=True),
                ],
            )


# --- tables ---------------------------------------------------------------------------------------


def _speedup_table(points: Sequence[Point], words: Words) -> Iterator[Table]:
    """Speed-up, efficiency and what was to be expected; a dash and why where nothing of it was
    measured."""
    every = [p.family for p in points]
    head = ("`arm`", "backend", "scaling", "ranks:count", "speedup:relative", "efficiency:percent",
            "law:relative", "law_communicating:relative")  # fmt: skip
    rows: list[Row] = [
        [
            p.arm,
            p.backend,
            name(p.family, every, words, "scaling.short"),
            p.n,
            Cell(numbers.NONE, note=reason(p, words)) if p.why_not else p.speedup,
            p.efficiency,
            p.predicted,
            p.communicating,
        ]
        for p in points
        if p.n > 1
    ]
    yield from table(words, "speed-up", head, rows)


def _times_table(points: Sequence[Point], words: Words) -> Iterator[Table]:
    """Times, throughput and the share of communication; nothing here is a speed-up."""
    head = ("`arm`", "backend", "scaling", "ranks:count", "batch_rank:samples", "cores_used:count",
            "step:milliseconds", "epoch:seconds", "throughput:samples_per_s",
            "per_core:samples_per_s", "waiting:percent", "transferring:percent")  # fmt: skip
    rows = [_times(p, [q.family for q in points], words) for p in points]
    yield from table(words, "scaling", head, rows)


def _times(p: Point, every: Sequence[Family], words: Words) -> Row:
    whole = sum(p.parts.values())
    shares = [p.parts[part] / whole if whole else None for part in ("wait", "transfer") if p.parts]
    unknown = Cell(numbers.NONE, note=words("scaling.cores_unknown"))
    family = name(p.family, every, words, "scaling.short")
    return [
        *(p.arm, p.backend, family, p.n, p.batch, p.room.used or unknown),
        *(p.step, p.epoch, p.rate, p.per_core, *(shares or [None, None])),
    ]


# --- figures --------------------------------------------------------------------------------------


def _families(points: Sequence[Point]) -> list[Family]:
    return list(dict.fromkeys(p.family for p in points))


def _speedup_figure(run: Run, words: Words, points: Sequence[Point]) -> Figure:
    """A panel for each family: ideal line, Amdahl's curve, measured points with intervals."""
    measured = [p for p in points if p.speedup]
    every = _families(measured)
    backends = [b for b in run.backends if any(p.backend == b for p in measured)]
    across = min(3, len(every))
    panels = []
    for family in every:
        here = [p for p in points if p.family == family]
        sizes = sorted({1, *(p.n for p in measured if p.family == family)})
        panels.append(
            Panel(
                list(_speedup_marks(here, backends)),
                Axis(words("axis.ranks"), ticks=[(n, str(n)) for n in sizes]),
                Axis(words("axis.speedup"), low=0),
                name(family, every, words),
            )
        )
    left_out = list(dict.fromkeys(p.arm for p in points if p.n > 1 and p.why_not))
    caption = [words("figure.speedup")]
    if left_out:
        caption.append(words("figure.left_out", arms=words.join(left_out)))
    values = [
        f"{p.arm} {p.backend} {numbers.factor(p.speedup.mean)}" for p in measured if p.speedup
    ]
    return Figure(
        "speed-up",
        words.sentences(caption),
        words("alt.speedup", values=", ".join(values)),
        panels,
        [
            *keys.colored_backends(backends),
            Key("series", "ideal", words("figure.ideal"), color="line", stroke="fine-dashes"),
            Key("series", "amdahl", words("figure.amdahl"), stroke="dots"),
            Key("series", "communicating", words("figure.communicating"), marker="diamond",
                hollow=True),
        ],
        columns=across,
        width=(420, 640, 880)[across - 1],
    )  # fmt: skip


def _speedup_marks(points: Sequence[Point], backends: Sequence[str]) -> Iterator[Mark]:
    """Backends side by side, so that the intervals of those that agree can be told apart."""
    measured = [p for p in points if p.speedup]
    most = max(p.n for p in measured)
    yield Line([1, most], [1, most], Owner(series="ideal"))
    for k, backend in enumerate(backends):
        here = [p for p in measured if p.backend == backend]
        if not here:
            continue
        yield from _amdahl(points, here, backend)
        shift = 4.0 * (k - (len(backends) - 1) / 2)
        expected = [(p.n, p.communicating) for p in here if p.communicating is not None]
        if expected:
            x, y = zip(*expected, strict=True)
            owner = Owner(backend=backend, series="communicating")
            yield Line(x, y, owner, joined=False, shift=shift)
        means = [p.speedup for p in here if p.speedup]
        yield Line(
            [1.0, *(p.n for p in here)],
            [1.0, *(s.mean for s in means)],
            Owner(backend=backend),
            low=[1.0, *(s.mean if s.low is None else s.low for s in means)],
            high=[1.0, *(s.mean if s.high is None else s.high for s in means)],
            bars="y",
            shift=shift,
        )


def _amdahl(points: Sequence[Point], here: Sequence[Point], backend: str) -> Iterator[Mark]:
    """Amdahl's law with the mean of the measured updates of the parameters."""
    serial = [p.parts["update"] for p in here if "update" in p.parts]
    one = next((p.step.mean for p in points if p.n == 1 and p.backend == backend), None)
    if here[0].family.kind != STRONG or not serial or one is None:
        return
    mean, most = sum(serial) / len(serial), max(p.n for p in here)
    x = [1 + (most - 1) * k / 60 for k in range(61)]
    y = [families.amdahl(n, one, mean) for n in x]
    yield Line(x, y, Owner(backend=backend, series="amdahl"), marker="none")


def _parts_figure(run: Run, words: Words, points: Sequence[Point]) -> Figure:
    """Families down, backends across, a bar for each number of ranks."""
    every = _families(points)
    shown = [b for b in ranks.frameworks(run) if any(p.backend == b for p in points)]
    crowded = any(p.room.enough is False for p in points)
    panels = []
    for family in every:
        for backend in shown:
            here = [p for p in points if p.family == family and p.backend == backend]
            labels = [
                words("figure.ranks", n=p.n) + (" *" if p.room.enough is False else "")
                for p in here
            ]
            title = words("scaling.on", backend=backend, kind=name(family, every, words))
            panels.append(
                Panel(
                    [mark for row, p in enumerate(here) for mark in _bars(row, p)],
                    Axis(words("axis.update_ms"), low=0),
                    Axis(names=labels, grid=False),
                    title,
                    height=18 + 30 * max(1, len(here)),
                )
            )
    caption = [words("figure.update_parts"), *([words("figure.take_turns")] if crowded else [])]
    values = [f"{p.arm} {p.backend} {numbers.quantity(1e3 * p.step.mean)}" for p in points]
    return Figure(
        "update-parts",
        words.sentences(caption),
        words("alt.update_parts", values=", ".join(values)),
        panels,
        keys.fine_parts(words),
        columns=len(shown),
        share_x="column",
    )


def _bars(row: int, p: Point) -> Iterator[Mark]:
    """Parts in milliseconds, then the whole as a number; of one rank no parts are recorded."""
    text = numbers.quantity(1e3 * p.step.mean)
    if not p.parts:
        yield Bar(row, 1e3 * p.step.mean, Owner(series="whole"), text=text)
        return
    left, used = 0.0, [part for part in PARTS if part in p.parts]
    for part in used:
        width = 1e3 * p.parts[part]
        last = text if part == used[-1] else ""
        yield Bar(row, width, Owner(series=part), left=left, text=last)
        left += width


# --- findings -------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "scaling", "table-speed-up")
    points = all_points(run)
    every = [p.family for p in points]
    explained = []
    for p in points:
        one = next((q for q in points if q.n == 1 and _beside(p, q)), None)
        if p.n > 1 and one is not None and not p.why_not:
            _speedup(notes, words, p, one, name(p.family, every, words))
            if p.family.kind == STRONG:
                explained.append((p, one))
    notes.about("figure-update-parts")
    for p, one in explained:
        _why(notes, p, one)
        _law(notes, p)
    notes.about("table-scaling")
    _crowded(notes, words, points)
    unknown = dict.fromkeys(p.backend for p in points if p.why_not == UNKNOWN and p.n > 1)
    if unknown:
        notes.warn("unknown", backends=words.join(list(unknown)))
    if points:
        _shared(notes, run, words)
    return notes


def _beside(p: Point, q: Point) -> bool:
    return p.family == q.family and p.backend == q.backend


def _speedup(notes: Notes, words: Words, p: Point, one: Point, kind: str) -> None:
    """Faster, slower, or neither: an interval that holds 1 shows no difference."""
    if p.speedup is None or p.efficiency is None:
        return
    several = p.speedup.seeds >= ENOUGH
    ends = interval(p.speedup, text=numbers.factor)
    base = 1.0 if p.family.kind == STRONG else float(p.n)
    low, high = p.speedup.low, p.speedup.high
    alike = several and low is not None and high is not None and low < base < high
    if p.family.kind == WEAK:
        key = "weak_alike" if alike else "weak"
    else:
        key = "alike" if alike else "faster" if p.speedup.mean >= base else "slower"
    between = ends and words("scaling.interval" if several else "scaling.range", values=ends)
    notes.say(key, p=p, one=one, kind=kind, interval=between)


def _why(notes: Notes, p: Point, one: Point) -> None:
    """What makes an update longer than the n-th part of one rank's."""
    if "update" not in p.parts:
        return
    ideal = one.step.mean / p.n
    gap = p.step.mean - ideal
    repeated = p.parts["update"] * (1 - 1 / p.n)
    left = gap - repeated - sum(p.parts[part] for part in ("wait", "transfer", "rest"))
    key = "superlinear" if gap <= 0 else "why" if left >= 0 else "why_less"
    notes.say(key, p=p, one=ideal, gap=gap, repeated=repeated, left=abs(left))


def _law(notes: Notes, p: Point) -> None:
    if p.predicted is not None and p.communicating is not None and p.speedup is not None:
        notes.say("law", p=p, sent=p.parts["wait"] + p.parts["transfer"])


def _crowded(notes: Notes, words: Words, points: Sequence[Point]) -> None:
    """Ranks that take turns: what a core gets done is all that can be told."""
    rates: dict[tuple[str, str, str], dict[str, float]] = {}
    for p in points:
        if p.n > 1 and p.why_not == OVERSUBSCRIBED and p.per_core is not None:
            key = (p.backend, places(p.room, words), p.family.base)
            rates.setdefault(key, {})[p.arm] = p.per_core.mean
    alone = {(p.backend, p.arm): p.per_core.mean for p in points if p.n == 1 and p.per_core}
    for (backend, where, base), by_arm in rates.items():
        one = alone.get((backend, base))
        notes.warn(
            "crowded",
            backend=backend,
            places=where,
            arms=words.join(list(by_arm)),
            values=words("list.comma").join(
                words("say.scaling.rate", arm=arm, rate=numbers.quantity(round(rate)))
                for arm, rate in by_arm.items()
            ),
            other=base,
            other_rate=numbers.quantity(None if one is None else round(one)),
        )


def _shared(notes: Notes, run: Run, words: Words) -> None:
    """Beside ranks with cores of their own: those that have between them what one rank had."""
    unpinned = families.families(run, pinned=False)
    arms = list(dict.fromkeys(a for f in unpinned for a in f.arms if run.select(a)))
    if arms:
        notes.warn("shared", len(arms), arms=words.join(arms))


TOPIC = Topic("scaling", 300, evidence, findings, leads=lambda run: 80 if all_points(run) else 0)
