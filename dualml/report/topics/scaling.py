"""Scaling: speed-up of several ranks over one if every rank has cores of its own, and its
limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend, ranks, scaling_families
from dualml.report.blocks import Block, Card, Cell, Notice, Table
from dualml.report.cards import method_cards
from dualml.report.columns import PLACE, Columns, tabulate
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Bar, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, interval_line
from dualml.report.results import format_results
from dualml.report.scaling import (
    OVERSUBSCRIBED,
    UNKNOWN,
    ScalingPoint,
    family_name,
    format_core_budget,
    no_speedup_text,
    notices,
    scaling_points,
)
from dualml.report.scaling_families import STRONG, WEAK
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield notices and the cards of formulas, the speed-up in a figure and a table, then where the
    time goes, times and throughput; nothing without a scaling family."""
    points = scaling_points(run)
    if not points:
        return
    yield from (Notice(text) for text in notices(run, words))
    yield from _cards(run, words)
    shown = [p for p in points if p.backend in ranks.timed_backends(run)]
    if any(p.speedup for p in shown):
        yield _speedup_figure(run, words, shown)
    yield from _speedup_table(points, words)
    if any(p.parts for p in shown):
        yield _parts_figure(run, words, shown)
    yield from _times_table(points, words)


def _cards(run: RunData, words: Messages) -> Iterator[Card]:
    """Yield a card with the formulas of each kind of scaling that this run has."""
    used = dict.fromkeys(
        (arm, f.kind) for f in scaling_families.families(run) for arm in (f.base, *f.arms)
    )
    title, text = "scaling.{}", "scaling.does.{}"
    yield from method_cards(words, "scaling", used, title, text, most=len(used))


# --- tables ---------------------------------------------------------------------------------------


def _place(points: Sequence[ScalingPoint], words: Messages) -> Columns[ScalingPoint]:
    """Return the first columns: arm, backend, kind of scaling and number of ranks."""
    every = [p.family for p in points]
    return {
        **PLACE,
        "scaling": lambda p: family_name(p.family, every, words, "scaling.short"),
        "ranks:count": lambda p: p.n,
    }


def _speedup_table(points: Sequence[ScalingPoint], words: Messages) -> Iterator[Table]:
    """Yield the table of speed-up, efficiency and predictions; a dash and the reason if not
    measured."""
    read: Columns[ScalingPoint] = {
        **_place(points, words),
        "speedup:relative": lambda p: p.speedup or _unknown(no_speedup_text(p, words, long=True)),
        "efficiency:percent": lambda p: p.efficiency,
        "law:relative": lambda p: p.predicted,
        "law_communicating:relative": lambda p: p.predicted_with_communication,
    }
    yield from tabulate(words, "speed-up", (p for p in points if p.n > 1), read)


def _unknown(why: str) -> Cell:
    """Return a cell with a dash and the reason why its value is unknown."""
    return Cell(numbers.NO_VALUE, note=why)


def _times_table(points: Sequence[ScalingPoint], words: Messages) -> Iterator[Table]:
    """Yield the table of times, throughput and the share of communication."""
    unknown = _unknown(words("scaling.cores_unknown"))
    read: Columns[ScalingPoint] = {
        **_place(points, words),
        "batch_rank:samples": lambda p: p.batch,
        "cores_used:count": lambda p: p.core_budget.used_cores or unknown,
        "step:milliseconds": lambda p: p.step,
        "epoch:seconds": lambda p: p.epoch,
        "throughput:samples_per_s": lambda p: p.rate,
        "per_core:samples_per_s": lambda p: p.per_core,
        "waiting:percent": lambda p: p.part_share("wait"),
        "transferring:percent": lambda p: p.part_share("transfer"),
    }
    yield from tabulate(words, "scaling", points, read)


# --- figures --------------------------------------------------------------------------------------


def _speedup_figure(run: RunData, words: Messages, points: Sequence[ScalingPoint]) -> Figure:
    """Return a figure with a panel per family: ideal line, Amdahl's curve, measured points with
    intervals."""
    measured = [p for p in points if p.speedup]
    every = list(dict.fromkeys(p.family for p in measured))
    backends = [b for b in run.backends if any(p.backend == b for p in measured)]
    across = min(3, len(every))
    panels = []
    for family in every:
        here = [p for p in measured if p.family == family]
        ticks = [(n, str(n)) for n in sorted({1, *(p.n for p in here)})]
        x, y = Axis(words("axis.ranks"), ticks=ticks), Axis(words("axis.speedup"), low=0)
        panels.append(
            Panel(list(_speedups(here, backends)), x, y, family_name(family, every, words))
        )
    absent = dict.fromkeys(p.arm for p in points if p.n > 1 and p.no_speedup_reason)
    looks = [
        *legend.colored_backends(backends),
        LegendEntry("series", "ideal", words("figure.ideal"), color="line", stroke="fine-dashes"),
        LegendEntry("series", "amdahl", words("figure.amdahl"), stroke="dots"),
        LegendEntry(
            "series", "communicating", words("figure.communicating"), marker="diamond", hollow=True
        ),
    ]
    return build_figure(
        words,
        "speed-up",
        panels,
        looks,
        {"values": format_results(measured, lambda p: numbers.format_by_name("factor", p.speedup))},
        more=[words("figure.left_out", arms=absent)] if absent else [],
        columns=across,
        width=(420, 640, 880)[across - 1],
    )


def _speedups(measured: Sequence[ScalingPoint], backends: Sequence[str]) -> Iterator[Mark]:
    """Yield the marks of one family; backends are shifted so that their intervals do not
    overlap."""
    most = max(p.n for p in measured)
    yield LineMark([1, most], [1, most], SeriesId(series="ideal"))
    for k, backend in enumerate(backends):
        here = [p for p in measured if p.backend == backend]
        yield from _amdahl(here, backend)
        shift = 4.0 * (k - (len(backends) - 1) / 2)
        expected = [
            (p.n, p.predicted_with_communication)
            for p in here
            if p.predicted_with_communication is not None
        ]
        if expected:
            x, y = zip(*expected, strict=True)
            owner = SeriesId(backend=backend, series="communicating")
            yield LineMark(x, y, owner, joined=False, shift=shift)
        if here:
            means = [MeanInterval(1.0, 1.0, 1.0, 1), *(p.speedup for p in here if p.speedup)]
            yield interval_line(
                [1.0, *(p.n for p in here)], means, SeriesId(backend=backend), shift=shift
            )


def _amdahl(here: Sequence[ScalingPoint], backend: str) -> Iterator[Mark]:
    """Yield the curve of Amdahl's law for the mean measured time of the parameter update; nothing
    for weak scaling, or if that time is unknown."""
    serial = [p.parts["update"] for p in here if "update" in p.parts]
    if serial and here[0].family.kind == STRONG:
        mean, most = sum(serial) / len(serial), max(p.n for p in here)
        x = [1 + (most - 1) * k / 60 for k in range(61)]
        y = [scaling_families.amdahl(n, here[0].single_rank.seconds, mean) for n in x]
        yield LineMark(x, y, SeriesId(backend=backend, series="amdahl"), marker="none")


def _parts_figure(run: RunData, words: Messages, points: Sequence[ScalingPoint]) -> Figure:
    """Return a figure of the parts of an update: families as rows, backends as columns, a bar per
    number of ranks."""
    every = list(dict.fromkeys(p.family for p in points))
    shown = [b for b in ranks.timed_backends(run) if any(p.backend == b for p in points)]
    panels = []
    for family, backend in itertools.product(every, shown):
        here = [p for p in points if p.family == family and p.backend == backend]
        labels = [words("figure.ranks", n=p.n) + " *" * p.crowded for p in here]
        title = words("scaling.on", backend=backend, kind=family_name(family, every, words))
        bars = [bar for row, p in enumerate(here) for bar in _part_bars(row, p)]
        panels.append(
            Panel(
                bars,
                Axis(words("axis.update_ms"), low=0),
                Axis(names=labels, grid=False),
                title,
                height=18 + 30 * max(1, len(here)),
            )
        )
    more = [words("figure.take_turns")] if any(p.crowded for p in points) else []
    values = format_results(points, lambda p: numbers.ms(p.seconds))
    return build_figure(
        words,
        "update-parts",
        panels,
        legend.fine_parts(words),
        {"values": values},
        more=more,
        columns=len(shown),
        share_x="column",
    )


def _part_bars(row: int, p: ScalingPoint) -> Iterator[Mark]:
    """Yield the parts of an update in milliseconds, then the total as text; with one rank no parts
    are recorded."""
    left, parts = 0.0, p.parts or {"whole": p.seconds}
    for k, (part, seconds) in enumerate(parts.items(), start=1):
        text = numbers.ms(p.seconds) if k == len(parts) else ""
        yield Bar(row, 1e3 * seconds, SeriesId(series=part), left=left, text=text)
        left += 1e3 * seconds


# --- findings -------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add each arm's speed-up with what limits it, and warnings about ranks without cores of
    their own."""
    words, points = notes.words, scaling_points(run)
    compared = [p for p in points if p.n > 1 and not p.no_speedup_reason]
    for p in compared:
        _add_speedup(notes, p, family_name(p.family, [q.family for q in points], words))
    notes.set_anchor("figure-update-parts")
    for p in compared:
        if p.family.kind == STRONG:
            _add_explanation(notes, p)
    notes.set_anchor("table-scaling")
    _add_oversubscribed(notes, words, points)
    unknown = dict.fromkeys(p.backend for p in points if p.no_speedup_reason == UNKNOWN and p.n > 1)
    if unknown:
        notes.add_warning("unknown", backends=unknown)
    # Families whose ranks share the cores that the single rank had.
    unpinned = scaling_families.families(run, pinned=False) if points else []
    shared = dict.fromkeys(a for f in unpinned for a in f.arms if run.select(a))
    if shared:
        notes.add_warning("shared", len(shared), arms=shared)


def _add_speedup(notes: Notes, p: ScalingPoint, kind: str) -> None:
    """Add the speed-up over one rank, if known. Strong scaling: whether n ranks are faster or
    slower, or no difference if the interval contains 1; weak scaling: the speed-up and efficiency,
    or no loss if the interval contains n."""
    if p.speedup is None:
        return
    if p.family.kind == WEAK:
        key = "weak_alike" if p.speedup.contains(p.n) else "weak"
    else:
        other = "faster" if p.speedup.mean >= 1 else "slower"
        key = "alike" if p.speedup.contains(1) else other
    notes.add(
        key,
        p=p,
        kind=kind,
        interval=p.speedup.format_labelled_interval(notes.words, numbers.factor),
    )


def _add_explanation(notes: Notes, p: ScalingPoint) -> None:
    """Add why an update takes longer than the n-th part of the single rank's, and what Amdahl's law
    predicts."""
    if "update" not in p.parts:
        return
    ideal = p.single_rank.seconds / p.n
    gap = p.seconds - ideal
    repeated = p.parts["update"] * (1 - 1 / p.n)
    left = gap - repeated - p.communication_seconds - p.parts["rest"]
    key = "superlinear" if gap <= 0 else "why" if left >= 0 else "why_less"
    notes.add(key, p=p, ideal=ideal, gap=gap, repeated=repeated, left=abs(left))
    if p.predicted is not None:
        notes.add("law", p=p)


def _add_oversubscribed(notes: Notes, words: Messages, points: Sequence[ScalingPoint]) -> None:
    """Add the throughput per core of arms that need more cores than there are (ranks × threads), so
    that their ranks take turns."""
    groups: dict[tuple[str, str, str], dict[str, ScalingPoint]] = {}
    for p in points:
        if p.n > 1 and p.no_speedup_reason == OVERSUBSCRIBED and p.per_core:
            where = (p.backend, format_core_budget(p.core_budget, words), p.family.base)
            groups.setdefault(where, {})[p.arm] = p
    for (backend, turns, base), by_arm in groups.items():
        alone = next(iter(by_arm.values())).single_rank
        rates = [words("say.scaling.rate", arm=arm, p=p) for arm, p in by_arm.items()]
        notes.add_warning(
            "crowded",
            backend=backend,
            places=turns,
            arms=by_arm,
            base=base,
            alone=alone,
            values=words("list.comma").join(rates),
        )


TOPIC = ReportSection(
    "scaling",
    300,
    evidence,
    findings,
    "table-speed-up",
    priority=lambda run: 80 if scaling_points(run) else 0,
)
