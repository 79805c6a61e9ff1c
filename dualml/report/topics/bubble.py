"""The bubble: how long the ranks of a pipeline idle, against what the schedule makes them idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from dualml.report import keys
from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import columns, percent
from dualml.report.figure import Axis, Figure, Key, Line, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.splits import shown, times
from dualml.report.splits.arms import SplitArm, Splits, healthy, schedule_name
from dualml.report.spread import Spread, cell, interval
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Schedules with the bubble of the formula → their markers; GPipe's are hollow.
SCHEDULES = {"1f1b": "circle", "gpipe": "square", "eager-1f1b": "triangle"}
FORMULA = "(p−1)/(m+p−1)"
THEORY = Key("series", FORMULA, color="muted", stroke="fine-dashes")
Group = Sequence[SplitArm]


def counted(splits: Splits) -> list[Group]:
    """Groups of arms that differ in the number of micro-batches (and the schedule) alone, with two
    numbers and more of one schedule, in the order of these numbers."""
    arms = [arm for arm in healthy(splits.pipelines) if arm.schedule in SCHEDULES]
    kept: list[Group] = []
    for group in splits.groups(arms, "split.micro_batches", "split.schedule"):
        counts = {(arm.schedule, arm.micro_batches) for arm in group}
        if len(counts) > len({schedule for schedule, _ in counts}):
            kept.append(sorted(group, key=lambda arm: arm.micro_batches))
    return kept


def by_schedule(group: Group) -> dict[str, Group]:
    known = {s: [arm for arm in group if arm.schedule == s] for s in SCHEDULES}
    return {schedule: arms for schedule, arms in known.items() if arms}


def lines(
    group: Group, backends: Sequence[str], value: Callable[[SplitArm, str], Spread | None]
) -> list[Line]:
    """A value against the number of micro-batches: a line for each backend and schedule."""
    places = [(b, s, arms) for b in backends for s, arms in by_schedule(group).items()]
    drawn = []
    for k, (backend, schedule, arms) in enumerate(places):
        points = [(arm.micro_batches, s) for arm in arms if (s := value(arm, backend))]
        ends = [(s.mean if s.low is None else s.low, s.mean if s.high is None else s.high)
                for _, s in points]  # fmt: skip
        drawn.append(
            Line(
                [m for m, _ in points],
                [s.mean for _, s in points],
                Owner(backend=backend, series=schedule),
                [low for low, _ in ends],
                [high for _, high in ends],
                bars="y",
                shift=3.0 * (k - (len(places) - 1) / 2),
            )
        )
    return drawn


def micro_batch_axis(group: Group, words: Words) -> Axis:
    counts = sorted({arm.micro_batches for arm in group})
    return Axis(words("axis.micro_batches"), "log2", ticks=[(m, str(m)) for m in counts])


def look(group: Group, backends: Sequence[str], words: Words) -> list[Key]:
    """Backends by colour, schedules by marker."""
    markers = [
        Key("series", s, schedule_name(s, words), marker=SCHEDULES[s], hollow=s == "gpipe")
        for s in by_schedule(group)
    ]
    return [*keys.colored_backends(backends), *markers]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    yield from shown.crowded(run, splits.pipelines, words)
    for number, group in enumerate(counted(splits)):
        if any(times.idle(run, arm.name, b) for arm in group for b in times.compared(splits)):
            yield _figure(splits, group, f"bubble-{number + 1}" if number else "bubble", words)
    rows = list(_rows(splits, words))
    head = columns(
        words,
        *("`arm`", "backend", "pipeline:count", "split_schedule", "micro_batches:count"),
        *("idle_ideal:percent", "idle_passes:percent", "idle:percent", "step:milliseconds"),
    )
    yield Table("bubble", words("table.bubble"), head, rows)


def _rows(splits: Splits, words: Words) -> Iterator[list[Cell | str]]:
    for arm in splits.pipelines:
        for backend in splits.run.backends:
            idle = times.idle(splits.run, arm.name, backend)
            if idle is not None:
                quartiles = interval(idle.scaled(100), lambda x: f"{x:.1f}")
                passes = times.recorded(splits.run, arm.name, backend, "bubble_passes")
                yield [
                    arm.name,
                    backend,
                    str(arm.mesh.pipeline),
                    schedule_name(arm.schedule, words),
                    str(arm.micro_batches),
                    percent(arm.ideal_idle),
                    percent(passes),
                    Cell(percent(idle.mean), note=quartiles),
                    cell(times.step(splits.run, arm.name, backend), 1e3),
                ]


def _figure(splits: Splits, group: Group, name: str, words: Words) -> Figure:
    """Left the idle share, right the time of an update."""
    run, backends, p = splits.run, times.compared(splits), group[0].mesh.pipeline
    fine = [1 + (group[-1].micro_batches - 1) * k / 80 for k in range(81)]
    formula = Line(fine, [100 * (p - 1) / (m + p - 1) for m in fine], Owner(series=FORMULA))

    def idle(arm: SplitArm, backend: str) -> Spread | None:
        share = times.idle(run, arm.name, backend)
        return share and share.scaled(100)

    def update(arm: SplitArm, backend: str) -> Spread | None:
        step = times.step(run, arm.name, backend)
        return step and step.scaled(1e3)

    x = micro_batch_axis(group, words)
    return Figure(
        name,
        words("bubble.figure", model=group[0].model, p=p),
        words("bubble.alt", values=shown.listed(
            [arm.name for arm in group], backends,
            lambda arm, b: numbers.percent(s.mean) if (s := times.idle(run, arm, b)) else "–")),
        [
            Panel([formula, *lines(group, backends, idle)], x, Axis(words("axis.idle"), low=0)),
            Panel(lines(group, backends, update), x, Axis(words("axis.update_ms"), low=0)),
        ],
        [*look(group, backends, words), THEORY],
        columns=2,
    )  # fmt: skip


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Notes:
    notes, splits = Notes(words, "bubble", "figure-bubble"), Splits(run)
    for group in counted(splits):
        for schedule, arms in by_schedule(group).items():
            if len(arms) > 1:
                _counts(notes, splits, schedule, arms)
    notes.about("table-bubble")
    values = shown.joined(words, (_above(words, splits, b) for b in times.compared(splits)))
    if values:
        notes.say("above", values=values)
    return notes


def _counts(notes: Notes, splits: Splits, schedule: str, arms: Group) -> None:
    """What more micro-batches do to the idle share, and to the time of an update."""
    words, run, few, many = notes.words, splits.run, arms[0], arms[-1]

    def idle(backend: str) -> str:
        one, two = (times.idle(run, arm.name, backend) for arm in (few, many))
        shares = (
            {"few": numbers.percent(one.mean), "many": numbers.percent(two.mean)}
            if (one and two)
            else {}
        )
        return words("say.bubble.from_to", backend=backend, **shares) if shares else ""

    def update(backend: str) -> str:
        steps = {a.micro_batches: s for a in arms if (s := times.step(run, a.name, backend))}
        if len(steps) < 2:
            return ""
        best, *_, last = sorted(steps, key=lambda m: steps[m].mean)
        return words("say.bubble.best", backend=backend, best=best, last=last,
                     best_ms=times.milliseconds(steps[best]),
                     last_ms=times.milliseconds(steps[last]))  # fmt: skip

    backends = times.compared(splits)
    what = {"schedule": schedule_name(schedule, words), "model": few.model}
    values = shown.joined(words, map(idle, backends))
    if values:
        notes.say("idle_counts", **what, values=values, few=few.micro_batches,
                  many=many.micro_batches, few_ideal=numbers.percent(few.ideal_idle),
                  many_ideal=numbers.percent(many.ideal_idle))  # fmt: skip
    values = shown.joined(words, map(update, backends))
    if values:
        notes.say("update_counts", **what, values=values)


def _above(words: Words, splits: Splits, backend: str) -> str:
    """Of pipelines without a slow rank: how far above the schedule's own idle share."""
    gaps, uneven = {}, []
    for arm in healthy(splits.pipelines):
        ideal, idle = arm.ideal_idle, times.idle(splits.run, arm.name, backend)
        passes = times.recorded(splits.run, arm.name, backend, "bubble_passes")
        if ideal is not None and idle is not None and passes is not None:
            gaps[arm.name] = 100 * (idle.mean - ideal)
            uneven.append(100 * (passes - ideal))
    if not gaps:
        return ""
    close, far = (f(gaps, key=lambda name: gaps[name]) for f in (min, max))
    return words.plural(
        "say.bubble.gap", len(gaps), backend=backend, n=len(gaps), close=close, far=far,
        gap=f"{median(gaps.values()):.1f}", uneven=f"{median(uneven):.1f}",
        least=f"{gaps[close]:.1f}", most=f"{gaps[far]:.1f}",
    )  # fmt: skip


TOPIC = Topic(
    "bubble", 620, evidence, findings, leads=lambda run: 60 if counted(Splits(run)) else 0
)
