"""Where to cut a model: seconds of an update by the position of the cut, and the cuts of
balances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Column, Table
from dualml.report.columns import Columns, number, tabulate
from dualml.report.figure import (
    Axis,
    Figure,
    LegendEntry,
    LineMark,
    Mark,
    Panel,
    SeriesId,
    TextMark,
)
from dualml.report.notes import Notes
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, without_straggler
from dualml.report.topics import ReportSection

Group = Sequence[SplitArm]


def cut_groups(splits: Splits) -> list[Group]:
    """Return groups of successful pipelines with one cut and without a slow rank that differ in
    nothing but the cut, ordered by its position, with at least two positions each."""
    arms = [arm for arm in without_straggler(splits.pipelines) if len(arm.cut) == 1]
    groups = (sorted(group, key=position) for group in splits.groups(arms, "split.cut"))
    return [group for group in groups if position(group[0]) < position(group[-1])]


def position(arm: SplitArm) -> int:
    """Return the index, from 0, of the layer before which the model is cut; 0 if the plan does not
    have this layer."""
    layers = [name for stage in arm.stages for name in stage]
    return layers.index(arm.cut[0]) if arm.cut[0] in layers else 0


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a figure per model of seconds of an update against the position of the cut, and the
    table of cuts."""
    splits = Splits(run)
    groups = cut_groups(splits)
    yield from times.crowding_notices(run, (arm for group in groups for arm in group), words)
    for k, group in enumerate(groups):
        if any(
            times.step_seconds(run, arm.name, b)
            for arm in group
            for b in times.timed_backends(splits)
        ):
            yield _figure(splits, group, f"cuts-{k + 1}" if k else "cuts", words)
    yield from _table(run, [arm for group in groups for arm in group], words)


def _table(run: RunData, arms: Group, words: Messages) -> Iterator[Table]:
    """Yield the table of cuts with parameter bytes, planned link bytes, seconds of an update and of
    computation."""
    backends = [b for b in run.backends if any(run.select(arm.name, b) for arm in arms)]

    def heads(key: str, unit: str) -> tuple[Column, ...]:
        labels = {b: words(f"column.{key}", backend=b) for b in backends}
        return tuple(number(words, f"{key}-{b}", label, unit) for b, label in labels.items())

    read: Columns[SplitArm] = {
        "`arm`": lambda arm: arm.name,
        "`cut_at`": lambda arm: ", ".join(arm.cut),
        "cut_by": lambda arm: arm.cut_origin(words),
        "parameters:bytes_ranks": lambda arm: arm.parameters(),
        "links_planned:bytes_update": lambda arm: arm.planned("links") or None,
        heads("split_step", "milliseconds"): lambda arm: [
            times.step_seconds(run, arm.name, b) for b in backends
        ],
        heads("split_computing", "ms_ranks"): lambda arm: [
            _computing(run, arm, b) for b in backends
        ],
    }
    yield from tabulate(words, "cuts", arms, read)


def _computing(run: RunData, arm: SplitArm, backend: str) -> str:
    """Return the milliseconds that each rank computes, as text."""
    parts = times.by_rank(run, arm.name, backend)
    return " · ".join(numbers.ms(p["gradient"] + p["update"]) for p in parts) or numbers.NO_VALUE


def _figure(splits: Splits, group: Group, name: str, words: Messages) -> Figure:
    """Return a figure of lines through the fastest arm at every cut; hollow markers show the cuts
    of balances."""
    run, backends = splits.run, times.timed_backends(splits)
    cuts = sorted({(position(arm), arm.cut[0]) for arm in group})
    place = {arm: cuts.index((position(arm), arm.cut[0])) for arm in group}
    balances: dict[int, list[str]] = {}
    for arm in group:
        if not arm.split.cut:
            balances.setdefault(place[arm], []).append(arm.cut_origin(words))
    marks: list[Mark] = []
    for backend in backends:
        every = {arm: times.step_seconds(run, arm.name, backend) for arm in group}
        steps = {arm: 1e3 * step.mean for arm, step in every.items() if step is not None}
        fastest: dict[int, float] = {}
        for arm, ms in steps.items():
            fastest[place[arm]] = min(ms, fastest.get(place[arm], ms))
        marks.append(LineMark(list(fastest), list(fastest.values()), SeriesId(backend=backend)))
        for arm, ms in steps.items():
            owner = SeriesId(backend=backend, series="hand" if arm.split.cut else "balance")
            hint = f"{arm.name} · {arm.cut_origin(words)};{ms:.3g}"
            marks.append(LineMark([place[arm]], [ms], owner, joined=False, hints=[hint]))
    for x, names in balances.items():
        marks.append(
            TextMark(
                x,
                0,
                "\n".join(names),
                align="center",
                muted=True,
                small=True,
                dy=-6.0 - 6.5 * len(names),
            )
        )
    look = [
        *legend.colored_backends(backends, marker=""),
        LegendEntry("series", "hand", marker="circle", listed=False),
        LegendEntry("series", "balance", words("cuts.balanced"), marker="diamond", hollow=True),
    ]
    ticks = [(float(k), layer) for k, (_, layer) in enumerate(cuts)]
    axis = Axis(words("axis.cut"), low=-0.3, high=len(cuts) - 0.7, ticks=ticks)
    panel = Panel(marks, axis, Axis(words("axis.update_ms"), low=0))
    alt = times.update_alt(run, [arm.name for arm in group], backends, words)
    return Figure(name, words("cuts.figure", model=group[0].model), alt, [panel], look, width=640)


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the best and the worst cut, and the cut that each balance chose."""
    words, splits = notes.words, Splits(run)
    for group in cut_groups(splits):
        places = (_place(notes, run, b, group) for b in times.timed_backends(splits))
        if notes.add_joined("cut", places, model=group[0].model):
            chosen = {(a.cut_origin(words), a.cut[0]): None for a in group if not a.split.cut}
            notes.add_joined(
                "balances", (notes.format_part("balance", by=by, cut=cut) for by, cut in chosen)
            )


def _place(notes: Notes, run: RunData, backend: str, group: Group) -> str:
    """Return the fastest and the slowest cut on a backend as text; empty if fewer than two
    positions were timed."""
    every = {arm: times.step_seconds(run, arm.name, backend) for arm in group}
    steps = {arm: step.mean for arm, step in every.items() if step is not None}
    if len(set(map(position, steps))) < 2:
        return ""
    best, worst = (f(steps, key=lambda arm: steps[arm]) for f in (min, max))
    return notes.format_part(
        "item",
        backend=backend,
        best=best,
        worst=worst,
        least=steps[best],
        most=steps[worst],
        times=steps[worst] / steps[best],
    )


TOPIC = ReportSection("cuts", 650, evidence, findings, "figure-cuts")
