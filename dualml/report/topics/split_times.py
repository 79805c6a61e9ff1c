"""Where the time of a split update goes: rank by rank beside the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Cell, Column, Table
from dualml.report.columns import columns
from dualml.report.figure import Axis, Bar, Figure, Mark, Panel, Rule
from dualml.report.measures import slug
from dualml.report.notes import Notes
from dualml.report.scaling import PARTS
from dualml.report.splits import shown, times
from dualml.report.splits.arms import SplitArm, Splits, healthy, model_of
from dualml.report.spread import cell
from dualml.report.topics import Topic
from dualml.report.topics.splits import bests
from dualml.store.run import Run
from dualml.words import Words, numbers

PIXELS, BETWEEN = 17.0, 0.45  # of a bar; between two arms, in bars
SHARES = 6  # arms in a sentence
BESIDES = ("wait", "transfer", "rest")


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    yield from shown.crowded(run, splits, words)
    for base, members in splits.families.items():
        arms = different(healthy(members))
        if any(times.by_rank(run, a.name, b) for a in arms for b in times.compared(splits)):
            yield _figure(splits, base, arms, words)
    yield from (_whole_table(splits, words), _parts_table(splits, words)) if splits else ()


def different(arms: Sequence[SplitArm]) -> list[SplitArm]:
    """The first arm of each way to split; others differ in numbers that have topics of their
    own."""
    first: dict[object, SplitArm] = {}
    for arm in arms:
        if arm.run.select(arm.name):
            split = arm.split
            key = (arm.look, arm.schedule, arm.size, split.arrival, str(split.layers))
            first.setdefault(key, arm)
    return list(first.values())


# --- tables ---------------------------------------------------------------------------------------


def _whole_table(splits: Splits, words: Words) -> Table:
    """The whole arm before those that split it; two columns for a backend."""
    run = splits.run
    backends = [b for b in run.backends if any(run.select(arm.name, b) for arm in splits)]
    head = columns(words, "`arm`", "`model`", "split_how", "ranks:count")
    for b in backends:
        for key, label, unit in (
            ("step", "split_step", "milliseconds"), ("ratio", "split_ratio", "relative")
        ):  # fmt: skip
            label, unit = words(f"column.{label}", backend=b), words(f"unit.{unit}")
            head.append(Column(f"{key}-{b}", label, unit, "number"))
    head += columns(words, *(["split_verdict"] if run.serial else []))
    rows = []
    for base, members in splits.families.items():
        hows = {base: words("splits.whole")} if base else {}
        hows |= {arm.name: arm.how(words) for arm in members}
        for name, how in hows.items():
            if not run.select(name):
                continue
            row: list[Cell | str] = [name, model_of(run, name), how]
            row.append(str(run.settings[name].world_size))
            for b in backends:
                step = cell(times.step(run, name, b), 1e3)
                row.append(Cell(shown.starred(step.text, run, name, b), note=step.note))
                ratio = times.against(run, name, b, base if name != base else None)
                row.append(cell(ratio, text=numbers.factor))
            rows.append(row + ([shown.verdict(run, name, words)] if run.serial else []))
    return Table("split-whole", words("table.split_whole"), head, rows)


def _parts_table(splits: Splits, words: Words) -> Table:
    """Means over the ranks."""
    run, rows = splits.run, []
    for arm in splits:
        for backend in run.backends:
            parts = times.average(times.by_rank(run, arm.name, backend))
            step = times.step(run, arm.name, backend)
            if parts and step:
                whole = shown.starred(times.milliseconds(step), run, arm.name, backend)
                each = [times.milliseconds(parts[k]) for k in PARTS]
                rows.append([arm.name, backend, whole, *each])
    parts_head = (f"part_{k}:milliseconds" for k in PARTS)
    head = columns(words, "`arm`", "backend", "step:milliseconds", *parts_head)
    return Table("split-parts", words("table.split_parts"), head, rows)


# --- figure ---------------------------------------------------------------------------------------


def _figure(splits: Splits, base: str | None, arms: Sequence[SplitArm], words: Words) -> Figure:
    """A bar for the whole model, and one for each rank of what splits it."""
    run, backends = splits.run, times.compared(splits)
    sizes = {**({base: 1} if base else {}), **{arm.name: arm.size for arm in arms}}
    tops, top = {}, 0.0
    for name, size in sizes.items():
        tops[name] = top
        top += size + BETWEEN
    ticks = [(tops[name] + (size - 1) / 2, name) for name, size in sizes.items()]
    y = Axis(low=-0.7, high=top - BETWEEN - 0.3, ticks=ticks, flip=True, grid=False)
    panels = []
    for backend in backends:
        marks: list[Mark] = []
        for middle, name in ticks:
            step = times.step(run, name, backend)
            if step is None:
                continue
            if name == base:
                marks.append(Rule(1e3 * step.mean, axis="x", dashed=True))
            text = shown.starred(times.milliseconds(step), run, name, backend)
            rows = times.by_rank(run, name, backend) or [{"whole": step.mean}]
            first = middle if len(rows) == 1 else tops[name]
            for rank, parts in enumerate(rows):
                marks += shown.stacked(first + rank, parts, 1e3, height=0.84)
            end = 1e3 * max(sum(parts.values()) for parts in rows)
            marks.append(Bar(middle, 0.0, left=end, text=text))
        x = Axis(words("axis.update_ms"), low=0)
        panels.append(Panel(marks, x, y, backend, height=PIXELS * (top + 0.4)))
    notes = [words("split_times.figure", model=arms[0].model, arm=base or numbers.NONE)]
    if any(times.take_turns(run, arm.name, b) for arm in arms for b in backends):
        notes.append(words("figure.take_turns"))
    values = shown.listed(sizes, backends, lambda name, b: times.update_ms(run, name, b))
    return Figure(
        f"split-{slug(base or arms[0].name)}",
        words.sentences(notes),
        words("alt.update_parts", values=values),
        panels,
        shown.part_keys(words),
        columns=len(panels),
        share_y="all",
    )


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Notes:
    notes, splits = Notes(words, "split_times"), Splits(run)
    backends = times.compared(splits)
    for base, members in splits.families.items():
        arms = [arm for arm in healthy(members) if run.select(arm.name)]
        if arms:
            notes.about(f"figure-split-{slug(base or arms[0].name)}")
            _besides(notes, run, backends, arms)
    notes.about("")
    again = [b for b in run.backends if run.framework(b) == "mindspore"]
    if any(run.select(arm.name, b) for arm in splits for b in again):
        notes.warn("again", backends=words.join(again))
    return notes


def _besides(notes: Notes, run: Run, backends: Sequence[str], arms: Sequence[SplitArm]) -> None:
    """What takes the ranks most of their time besides computing: of each way to split the first
    arm."""
    words, first = notes.words, dict[object, SplitArm]()
    for arm in arms:
        first.setdefault((arm.look, arm.schedule if arm.piped else ""), arm)

    def item(backend: str) -> str:
        shares = []
        for arm in [*first.values()][:SHARES]:
            parts = times.average(times.by_rank(run, arm.name, backend))
            total = sum(parts.values())
            if total:
                part = max(BESIDES, key=lambda part: parts[part])
                share = numbers.percent(parts[part] / total)
                shares.append(words(f"say.split_times.{part}", arm=arm.name, share=share))
        values = words("list.comma").join(shares)
        return words("say.split_times.backend", backend=backend, values=values) if shares else ""

    values = shown.joined(words, map(item, backends))
    if values:
        notes.say("besides", values=values)


#: Without whole models to compare with, this is what there is to say.
TOPIC = Topic(
    "split_times", 605, evidence, findings, leads=lambda run: 0 if bests(Splits(run)) else 70
)
