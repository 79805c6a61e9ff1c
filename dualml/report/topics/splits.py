"""Whole against split: of every model the fastest arm of each way to split it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dualml.report.blocks import Block, Cell, Column, Table
from dualml.report.columns import columns
from dualml.report.figure import Axis, Figure, Mark, Panel, Rule
from dualml.report.notes import Notes
from dualml.report.splits import shown, times
from dualml.report.splits.arms import SplitArm, Splits, healthy
from dualml.report.spread import Spread, cell
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

ROWS = 8  # of the table that answers


@dataclass(frozen=True)
class Best:
    """The fastest arm of a way to split a model. ``ratios``: backend → time of an update over that
    of the whole model, ``base``."""

    base: str
    arm: SplitArm
    ratios: dict[str, Spread]

    @property
    def ratio(self) -> float:
        """Geometric mean over the backends."""
        logs = [math.log(s.mean) for s in self.ratios.values() if s.mean > 0]
        return math.exp(sum(logs) / len(logs)) if logs else math.inf


def bests(splits: Splits) -> list[Best]:
    """By model in the experiment's order; of arms whose ranks had cores of their own, where there
    are any."""
    run, backends = splits.run, times.compared(splits)
    fastest = []
    for base, members in splits.families.items():
        ways: dict[str, list[Best]] = {}
        for arm in healthy(members) if base else ():
            ratios = {
                b: s for b in backends if (s := times.against(run, arm.name, b, base)) is not None
            }
            if base and ratios:
                ways.setdefault(arm.way, []).append(Best(base, arm, ratios))
        for each in ways.values():
            own_cores = [x for x in each if not times.crowded(run, [x.arm])]
            fastest.append(min(own_cores or each, key=lambda best: best.ratio))
    return fastest


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    fastest = bests(splits)
    if not fastest:
        return
    yield from shown.crowded(run, (best.arm for best in fastest), words)
    yield _figure(splits, fastest, words)
    yield _table(splits, fastest, words)


def _figure(splits: Splits, fastest: Sequence[Best], words: Words) -> Figure:
    """A panel for each backend; parts of an update as shares of the whole model's time."""
    run, backends = splits.run, times.compared(splits)
    panels = []
    for backend in backends:
        marks: list[Mark] = [Rule(1, axis="x", dashed=True)]
        for y, best in enumerate(fastest):
            whole, ratio = times.step(run, best.base, backend), best.ratios.get(backend)
            if whole and ratio:
                text = shown.starred(numbers.factor(ratio.mean), run, best.arm.name, backend)
                parts = times.parts(run, best.arm.name, backend)
                marks += shown.stacked(y, parts, 1 / whole.mean, text)
        names = [_name(best, words) for best in fastest]
        x = Axis(words("axis.split_ratio"), low=0)
        y_axis = Axis(names=names, grid=False)
        panels.append(Panel(marks, x, y_axis, backend, height=22.0 * len(fastest)))
    ratios = {(x.arm.name, b): numbers.factor(s.mean) for x in fastest for b, s in x.ratios.items()}
    values = shown.listed(
        [best.arm.name for best in fastest], backends, lambda *place: ratios.get(place, "–")
    )
    return Figure(
        "splits",
        words("splits.figure"),
        words("splits.alt", values=values),
        panels,
        shown.part_keys(words),
        columns=len(panels),
        width=620,
        share_y="all",
    )


def _name(best: Best, words: Words) -> str:
    return f"{best.arm.model} · {words(f'splits.way.{best.arm.way}')}"


def _table(splits: Splits, fastest: Sequence[Best], words: Words) -> Table:
    """Of many rows only the fastest way of each model."""
    models: dict[str, list[Best]] = {}
    for best in fastest:
        models.setdefault(best.base, []).append(best)
    caption = words("table.splits")
    if len(fastest) > ROWS:
        caption = words("table.splits_fastest")
        fastest = [min(each, key=lambda best: best.ratio) for each in models.values()]
    backends = times.compared(splits)
    ratios = [Column(f"ratio-{b}", b, words("unit.relative"), "number") for b in backends]
    rows: list[list[Cell | str]] = [
        [
            Cell(_name(best, words), note=best.arm.name),
            *(_ratio(splits.run, best, b) for b in backends),
            numbers.nbytes(best.arm.crossing_bytes or None),
            replace(shown.verdict(splits.run, best.arm.name, words), note=""),
        ]
        for best in fastest
    ]
    head = [*columns(words, "split_how"), *ratios]
    head += columns(words, "crossed:bytes_update", "verdict")
    return Table("splits", caption, head, rows)


def _ratio(run: Run, best: Best, backend: str) -> Cell:
    s = best.ratios.get(backend)
    mean = cell(s, text=numbers.factor)
    text = shown.starred(mean.text, run, best.arm.name, backend) if s else mean.text
    return Cell(text, "good" if s and s.mean < 1 else "", mean.note)


# --- sentences ------------------------------------------------------------------------------------

#: What is another thing for calls than for messages: the driver may be a rank more, and there is
#: one order of the passes; and what a second trainer changes.
CALLED = ("split.engine", "split.schedule", "split.place", "world_size")
TRAINERS = ("split.trainers", "split.schedule", "split.micro_batches", "world_size")


def findings(run: Run, words: Words) -> Notes:
    notes, splits = Notes(words, "splits", "figure-splits"), Splits(run)
    values = shown.joined(words, (_faster(splits, b, words) for b in times.compared(splits)))
    if values:
        notes.say("faster", values=values)
    for arm in splits:
        if arm.split.arrival == "asynchronous":
            _against(notes, "asynchronous", splits, arm, ("split.arrival",))
        elif arm.trainers > 1:
            _against(notes, "trainers", splits, arm, TRAINERS)
        elif arm.rpc:
            _against(notes, "rpc", splits, arm, CALLED)
    return notes


def _faster(splits: Splits, backend: str, words: Words) -> str:
    """How many arms beat the whole model, and which is the fastest."""
    ratios = {
        arm.name: ratio.mean
        for base, members in splits.families.items()
        for arm in healthy(members)
        if (ratio := times.against(splits.run, arm.name, backend, base)) is not None
    }
    own_cores = [name for name in ratios if not times.take_turns(splits.run, name, backend)]
    fair = own_cores or list(ratios)
    if not fair:
        return ""
    best = min(fair, key=lambda name: ratios[name])
    return words("say.splits.item_faster", backend=backend, n=len(fair), arm=best,
                 k=sum(ratios[name] < 1 for name in fair),
                 times=numbers.factor(ratios[best]))  # fmt: skip


def _against(notes: Notes, key: str, splits: Splits, arm: SplitArm, vary: Sequence[str]) -> None:
    """An arm against the first that splits the same stages in a plainer way."""
    plainer = (
        other
        for other in splits.partners(arm, *vary)
        if other.stages == arm.stages and other.split.engine == "messages"
        and (other.trainers == 1 or other.trainers == arm.trainers)
    )  # fmt: skip
    for other in plainer:
        items = (_item(notes.words, key, arm, other, b) for b in splits.run.backends)
        values = shown.joined(notes.words, items)
        if values:
            notes.say(key, arm=arm.name, n=arm.size, other=other.name, values=values)
            return


def _item(words: Words, key: str, arm: SplitArm, other: SplitArm, backend: str) -> str:
    """Their times, and the losses where they are not equal by construction."""
    steps = [times.step(arm.run, each.name, backend) for each in (arm, other)]
    if steps[0] is None or steps[1] is None:
        return ""
    ms, other_ms = map(times.milliseconds, steps)
    ratio = numbers.factor(steps[0].mean / steps[1].mean)
    text = words("say.splits.item", backend=backend, ms=ms, other_ms=other_ms, times=ratio)
    if key != "asynchronous":
        return text
    losses = (
        numbers.loss(numbers.mean([t.final_loss for t in arm.run.select(each.name, backend)]))
        for each in (arm, other)
    )
    return text + words("say.splits.losses", loss=next(losses), other_loss=next(losses))


TOPIC = Topic("splits", 600, evidence, findings, leads=lambda run: 80)
