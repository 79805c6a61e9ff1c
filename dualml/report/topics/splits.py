"""Whole against split models: the fastest arm of each way to split a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import Columns, number, tabulate
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Figure, Mark, Panel, ReferenceLine
from dualml.report.measures import mean_over_trials
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, without_straggler
from dualml.report.topics import ReportSection

ROWS = 8  # most rows of the table on the first screen


@dataclass(frozen=True)
class FastestSplit:
    """The fastest arm of one way to split a model. ``ratios``: backend → seconds of an update
    relative to the whole-model arm, ``base``."""

    base: str
    arm: SplitArm
    ratios: dict[str, MeanInterval]

    @property
    def ratio(self) -> float:
        """Geometric mean of the ratios over the backends."""
        return geometric_mean([s.mean for s in self.ratios.values()])

    def name(self, words: Messages) -> str:
        """Return the model and the way it is split, as text."""
        return f"{self.arm.model} · {words(f'splits.way.{self.arm.main_split_kind}')}"

    def cell(self, backend: str) -> Cell:
        """Return the cell of the ratio on a backend, green below 1; a dash if unknown."""
        s = self.ratios.get(backend)
        if s is None:
            return Cell(numbers.NO_VALUE)
        text = times.mark_oversubscribed(
            numbers.factor(s.mean), self.arm.run, self.arm.name, backend
        )
        return replace(s.cell(numbers.factor), text=text, tone="good" if s.mean < 1 else "")


def fastest_splits(splits: Splits) -> list[FastestSplit]:
    """Return the fastest arm per model and way to split it, in the experiment's order; arms whose
    ranks had cores of their own are preferred. Models without a whole-model arm and arms with a
    slow rank are left out."""
    run, backends = splits.run, times.timed_backends(splits)
    fastest = []
    for base, members in splits.families.items():
        ways: dict[str, list[FastestSplit]] = {}
        for arm in without_straggler(members) if base else ():
            every = {b: times.step_ratio(run, arm.name, b, base) for b in backends}
            ratios = {b: s for b, s in every.items() if s is not None}
            if base and ratios:
                ways.setdefault(arm.main_split_kind, []).append(FastestSplit(base, arm, ratios))
        for each in ways.values():
            own_cores = [x for x in each if not times.oversubscribed_arms(run, [x.arm])]
            fastest.append(min(own_cores or each, key=lambda best: best.ratio))
    return fastest


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figure and the table of the fastest arm of each way to split a model; nothing if
    none was timed."""
    splits = Splits(run)
    fastest = fastest_splits(splits)
    if fastest:
        yield from times.crowding_notices(run, (best.arm for best in fastest), words)
        yield _figure(splits, fastest, words)
        yield from _table(splits, fastest, words)


def _figure(splits: Splits, fastest: Sequence[FastestSplit], words: Messages) -> Figure:
    """Return a figure with a panel per backend: parts of an update as shares of the whole model's
    time."""
    run, backends = splits.run, times.timed_backends(splits)
    x = Axis(words("axis.split_ratio"), low=0)
    y = Axis(names=[best.name(words) for best in fastest], grid=False)
    panels = []
    for backend in backends:
        marks: list[Mark] = [ReferenceLine(1, axis="x", dashed=True)]
        for row, best in enumerate(fastest):
            whole = times.step_seconds(run, best.base, backend)
            if whole and backend in best.ratios:
                parts = times.parts(run, best.arm.name, backend)
                marks += times.stacked_bars(row, parts, 1 / whole.mean, best.cell(backend).text)
        panels.append(Panel(marks, x, y, backend, height=22.0 * len(fastest)))
    ratios = {(x.arm.name, b): numbers.factor(s.mean) for x in fastest for b, s in x.ratios.items()}
    names = [best.arm.name for best in fastest]
    values = times.format_values(names, backends, lambda *at: ratios.get(at, numbers.NO_VALUE))
    return build_figure(
        words,
        "splits",
        panels,
        times.part_keys(words),
        {"values": values},
        width=620,
        share_y="all",
    )


def _table(splits: Splits, fastest: Sequence[FastestSplit], words: Messages) -> Iterator[Table]:
    """Yield the table of ratios; with many rows only the fastest way of each model."""
    caption, backends = "splits", times.timed_backends(splits)
    if len(fastest) > ROWS:
        caption = "splits_fastest"
        bases = dict.fromkeys(best.base for best in fastest)
        fastest = [min((x for x in fastest if x.base == b), key=lambda x: x.ratio) for b in bases]
    run = splits.run

    def verdict(best: FastestSplit) -> Cell:
        return replace(times.worst_verdict_cell(run, best.arm.name, words), note="")

    read: Columns[FastestSplit] = {
        "split_how": lambda best: Cell(best.name(words), note=best.arm.name),
        tuple(number(words, f"ratio-{b}", b, "relative") for b in backends): lambda best: map(
            best.cell, backends
        ),
        "crossed:bytes_update": lambda best: best.arm.crossing_bytes or None,
        "verdict": verdict,
    }
    yield from tabulate(words, "splits", fastest, read, caption)


# --- sentences ------------------------------------------------------------------------------------

#: Kind of split (the first that applies is reported) → settings in which the plainer arm may
#: differ. RPC differs from messages in more of them: the driver may be an extra rank, and there is
#: only one order of the passes.
VARY = {
    "asynchronous": ("split.arrival",),
    "trainers": ("split.trainers", "split.schedule", "split.micro_batches", "world_size"),
    "rpc": ("split.engine", "split.schedule", "split.place", "world_size"),
    "devices": (
        "split.engine",
        "split.devices",
        "split.schedule",
        "split.place",
        "split.data",
        "world_size",
    ),
}


def findings(notes: Notes, run: RunData) -> None:
    """Add how many split arms are faster than the whole model, and asynchronous, trainer, RPC
    and device splits compared with plainer ones."""
    splits = Splits(run)
    notes.add_joined("faster", (_faster(splits, b, notes) for b in times.timed_backends(splits)))
    for arm in splits:
        for key in [way for way in VARY if way in arm.split_kinds][:1]:
            _compare_with_plainer(notes, key, splits, arm)


def _faster(splits: Splits, backend: str, notes: Notes) -> str:
    """Return how many arms beat the whole model on a backend, and which is the fastest, as text;
    empty if none was timed. Arms whose ranks took turns on cores count only if there are no
    others."""
    ratios = {
        arm.name: ratio.mean
        for base, members in splits.families.items()
        for arm in without_straggler(members)
        if (ratio := times.step_ratio(splits.run, arm.name, backend, base)) is not None
    }
    own_cores = [name for name in ratios if not times.is_oversubscribed(splits.run, name, backend)]
    fair = own_cores or list(ratios)
    if not fair:
        return ""
    best, k = min(fair, key=lambda name: ratios[name]), sum(ratios[name] < 1 for name in fair)
    return notes.format_part(
        "item_faster", backend=backend, n=len(fair), arm=best, k=k, times=ratios[best]
    )


def _compare_with_plainer(notes: Notes, key: str, splits: Splits, arm: SplitArm) -> None:
    """Add an arm compared with the first one that splits the same stages in a plainer way and was
    timed; nothing without one."""
    for other in splits.partners(arm, *VARY[key]):
        plainer = other.split.engine == "messages" and other.trainers in (1, arm.trainers)
        if other.stages == arm.stages and plainer:
            items = (_item(notes, key, arm, other, b) for b in splits.run.backends)
            if notes.add_joined(key, items, arm=arm, other=other):
                return


def _item(notes: Notes, key: str, arm: SplitArm, other: SplitArm, backend: str) -> str:
    """Return the seconds of an update of two arms on a backend as text, for asynchronous training
    also their losses; empty if a time is unknown."""
    one, two = (times.step_seconds(arm.run, each.name, backend) for each in (arm, other))
    if one is None or two is None:
        return ""
    text = notes.format_part("item", backend=backend, one=one, two=two, times=one.mean / two.mean)
    if key != "asynchronous":
        return text
    loss, other_loss = (
        mean_over_trials(arm.run, each.name, backend, "final_loss") for each in (arm, other)
    )
    return text + notes.format_part("losses", loss=loss, other_loss=other_loss)


TOPIC = ReportSection("splits", 600, evidence, findings, "figure-splits", priority=lambda run: 80)
