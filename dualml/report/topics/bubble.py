"""The pipeline bubble: how long ranks idle, compared with the idle share of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from dualml.report import keys
from dualml.report.blocks import Block
from dualml.report.columns import table
from dualml.report.figure import Axis, Figure, Key, Line, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.shown import figure
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, healthy, schedule_name
from dualml.report.spread import Spread
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Schedules whose bubble is `FORMULA` → their markers; GPipe's are hollow.
SCHEDULES = {"1f1b": "circle", "gpipe": "square", "eager-1f1b": "triangle"}
FORMULA = "(p−1)/(m+p−1)"
THEORY = Key("series", FORMULA, color="muted", stroke="fine-dashes")
HEAD = ("`arm`", "backend", "pipeline:count", "split_schedule", "micro_batches:count",
        "idle_ideal:percent", "idle_passes:percent", "idle:percent",
        "step:milliseconds")  # fmt: skip
Group = Sequence[SplitArm]


def counted(splits: Splits) -> list[Group]:
    """Return groups of arms that differ only in the number of micro-batches (and the schedule),
    with at least two numbers for one schedule, ordered by this number."""
    arms = [arm for arm in healthy(splits.pipelines) if arm.schedule in SCHEDULES]
    groups = splits.groups(arms, "split.micro_batches", "split.schedule")
    return [
        sorted(group, key=lambda arm: arm.micro_batches)
        for group in groups
        if len({(arm.schedule, arm.micro_batches) for arm in group}) > len(by_schedule(group))
    ]


def by_schedule(group: Group) -> dict[str, Group]:
    known = {s: [arm for arm in group if arm.schedule == s] for s in SCHEDULES}
    return {schedule: arms for schedule, arms in known.items() if arms}


def lines(
    group: Group, backends: Sequence[str], value: Callable[[SplitArm, str], Spread | None]
) -> list[Line]:
    """Return lines of a value against the number of micro-batches, one per backend and schedule."""
    places = [(b, s, arms) for b in backends for s, arms in by_schedule(group).items()]
    drawn = []
    for k, (backend, schedule, arms) in enumerate(places):
        points = {arm.micro_batches: s for arm in arms if (s := value(arm, backend))}
        means, ends = [s.mean for s in points.values()], [s.ends for s in points.values()]
        owner, shift = Owner(backend=backend, series=schedule), 3.0 * (k - (len(places) - 1) / 2)
        low, high = ([each[side] for each in ends] for side in (0, 1))
        drawn.append(Line([*points], means, owner, low, high, bars="y", shift=shift))
    return drawn


def micro_batch_axis(group: Group, words: Words) -> Axis:
    counts = sorted({arm.micro_batches for arm in group})
    return Axis(words("axis.micro_batches"), "log2", ticks=[(m, str(m)) for m in counts])


def look(group: Group, backends: Sequence[str], words: Words) -> list[Key]:
    """Return the keys of backends by colour and of schedules by marker."""
    markers = [
        Key("series", s, schedule_name(s, words), marker=SCHEDULES[s], hollow=s == "gpipe")
        for s in by_schedule(group)
    ]
    return [*keys.colored_backends(backends), *markers]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    yield from times.crowded(run, splits.pipelines, words)
    for number, group in enumerate(counted(splits)):
        if any(times.idle(run, arm.name, b) for arm in group for b in times.compared(splits)):
            yield _figure(splits, group, f"-{number + 1}" if number else "", words)
    rows = [
        [
            *(arm.name, backend, arm.mesh.pipeline, schedule_name(arm.schedule, words)),
            *(arm.micro_batches, arm.ideal_idle, times.passes(run, arm.name, backend)),
            *(idle, times.step(run, arm.name, backend)),
        ]
        for arm in splits.pipelines
        for backend in run.backends
        if (idle := times.idle(run, arm.name, backend))
    ]
    yield from table(words, "bubble", HEAD, rows)


def _figure(splits: Splits, group: Group, suffix: str, words: Words) -> Figure:
    """Return the idle share (left) and the seconds of an update (right)."""
    run, backends, p = splits.run, times.compared(splits), group[0].mesh.pipeline
    fine = [1 + (group[-1].micro_batches - 1) * k / 80 for k in range(81)]
    formula = Line(fine, [100 * (p - 1) / (m + p - 1) for m in fine], Owner(series=FORMULA))

    def scaled(of: Callable[[Run, str, str], Spread | None], by: float) -> list[Line]:
        return lines(group, backends, lambda arm, b: (s := of(run, arm.name, b)) and s.scaled(by))

    def idle(arm: str, backend: str) -> str:
        share = times.idle(run, arm, backend)
        return numbers.percent(share and share.mean)

    x, names = micro_batch_axis(group, words), [arm.name for arm in group]
    shares = Panel([formula, *scaled(times.idle, 100)], x, Axis(words("axis.idle"), low=0))
    updates = Panel(scaled(times.step, 1e3), x, Axis(words("axis.update_ms"), low=0))
    values = {"arm": group[0], "values": times.listed(names, backends, idle)}
    look_of = [*look(group, backends, words), THEORY]
    return figure(words, "bubble", [shares, updates], look_of, values, suffix=suffix, columns=2)


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Notes:
    notes, splits = Notes(words, "bubble", "figure-bubble"), Splits(run)
    backends = times.compared(splits)
    for group in counted(splits):
        for schedule, arms in by_schedule(group).items():
            if len(arms) > 1:
                ends, name = (arms[0], arms[-1]), schedule_name(schedule, words)
                idle = ([times.idle(run, arm.name, b) for arm in ends] for b in backends)
                parts = (
                    notes.part("from_to", backend=b, few=few, many=many)
                    for b, (few, many) in zip(backends, idle, strict=True)
                )
                notes.say_all("idle_counts", parts, schedule=name, few=ends[0], many=ends[1])
                parts = (_update(notes, arms, b) for b in backends)
                notes.say_all("update_counts", parts, schedule=name, model=ends[0].model)
    notes.about("table-bubble")
    notes.say_all("above", (_above(words, splits, b) for b in backends))
    return notes


def _update(notes: Notes, arms: Group, backend: str) -> str:
    """Return the sentence part with the shortest and the longest update."""
    steps = {a: s.mean for a in arms if (s := times.step(a.run, a.name, backend))}
    if len(steps) < 2:
        return ""
    best, *_, last = sorted(steps, key=lambda arm: steps[arm])
    return notes.part("best", backend=backend, best=best, last=last, best_s=steps[best],
                      last_s=steps[last])  # fmt: skip


def _above(words: Words, splits: Splits, backend: str) -> str:
    """Return how far pipelines without a slow rank exceed the idle share of the schedule."""
    gaps, uneven = {}, []
    for arm in healthy(splits.pipelines):
        places = splits.run, arm.name, backend
        ideal, idle, passes = arm.ideal_idle, times.idle(*places), times.passes(*places)
        if ideal is not None and idle is not None and passes is not None:
            gaps[arm.name] = 100 * (idle.mean - ideal)
            uneven.append(100 * (passes - ideal))
    if not gaps:
        return ""
    close, far = (f(gaps, key=lambda name: gaps[name]) for f in (min, max))
    return words.plural(
        "say.bubble.gap", len(gaps), backend=backend, n=len(gaps), close=close, far=far,
        gap=median(gaps.values()), uneven=median(uneven), least=gaps[close], most=gaps[far],
    )  # fmt: skip


TOPIC = Topic(
    "bubble", 620, evidence, findings, leads=lambda run: 60 if counted(Splits(run)) else 0
)
