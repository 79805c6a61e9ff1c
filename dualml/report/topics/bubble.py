"""The pipeline bubble: how long ranks idle, compared with the idle share of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block
from dualml.report.columns import Columns
from dualml.report.confidence import MeanInterval
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Panel, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, schedule_name, without_straggler
from dualml.report.topics import table_section

#: Schedules whose bubble is `FORMULA` → their markers; GPipe's are hollow.
SCHEDULES = {"1f1b": "circle", "gpipe": "square", "eager-1f1b": "triangle"}
FORMULA = "(p−1)/(m+p−1)"
THEORY = LegendEntry("series", FORMULA, color="muted", stroke="fine-dashes")
Group = Sequence[SplitArm]
SplitTrials = tuple[SplitArm, str]  # an arm on a backend


def micro_batch_groups(splits: Splits) -> list[Group]:
    """Return groups of successful pipelines, with a schedule of `SCHEDULES` and without a slow
    rank, that differ only in the number of micro-batches (and the schedule), with at least two
    numbers for one schedule, ordered by this number."""
    arms = [arm for arm in without_straggler(splits.pipelines) if arm.schedule in SCHEDULES]
    groups = splits.groups(arms, "split.micro_batches", "split.schedule")
    return [
        sorted(group, key=lambda arm: arm.micro_batches)
        for group in groups
        if len({(arm.schedule, arm.micro_batches) for arm in group}) > len(by_schedule(group))
    ]


def by_schedule(group: Group) -> dict[str, Group]:
    """Return pipeline schedule → its arms of the group, in the order of `SCHEDULES`, without empty
    groups."""
    known = {s: [arm for arm in group if arm.schedule == s] for s in SCHEDULES}
    return {schedule: arms for schedule, arms in known.items() if arms}


def micro_batch_lines(
    group: Group, backends: Sequence[str], value: Callable[[SplitArm, str], MeanInterval | None]
) -> list[LineMark]:
    """Return lines of ``value(arm, backend)``, with its interval as error bars, against the number
    of micro-batches: one line per backend and schedule, without arms whose value is None."""
    places = [(b, s, arms) for b in backends for s, arms in by_schedule(group).items()]
    drawn = []
    for k, (backend, schedule, arms) in enumerate(places):
        points = {arm.micro_batches: s for arm in arms if (s := value(arm, backend))}
        means, ends = [s.mean for s in points.values()], [s.bounds for s in points.values()]
        owner, shift = SeriesId(backend=backend, series=schedule), 3.0 * (k - (len(places) - 1) / 2)
        low, high = ([each[side] for each in ends] for side in (0, 1))
        drawn.append(LineMark([*points], means, owner, low, high, bars="y", shift=shift))
    return drawn


def micro_batch_axis(group: Group, words: Messages) -> Axis:
    """Return a logarithmic axis with a tick at each number of micro-batches of the group."""
    counts = sorted({arm.micro_batches for arm in group})
    return Axis(words("axis.micro_batches"), "log2", ticks=[(m, str(m)) for m in counts])


def legend_entries(group: Group, backends: Sequence[str], words: Messages) -> list[LegendEntry]:
    """Return the legend entries of backends, by colour, and of the group's schedules, by marker."""
    markers = [
        LegendEntry("series", s, schedule_name(s, words), marker=SCHEDULES[s], hollow=s == "gpipe")
        for s in by_schedule(group)
    ]
    return [*legend.colored_backends(backends), *markers]


def idle_pipelines(run: RunData) -> list[SplitTrials]:
    """Return (arm, backend) for each pipeline on each backend where its idle share was measured."""
    every = ((arm, b) for arm in Splits(run).pipelines for b in run.backends)
    return [(arm, b) for arm, b in every if times.measured_bubble(run, arm.name, b)]


def columns(run: RunData, words: Messages, records: Sequence[SplitTrials]) -> Columns[SplitTrials]:
    """Return the columns of measured idle shares beside those of the schedules."""
    return {
        "`arm`": lambda r: r[0].name,
        "backend": lambda r: r[1],
        "pipeline:count": lambda r: r[0].mesh.pipeline,
        "split_schedule": lambda r: schedule_name(r[0].schedule, words),
        "micro_batches:count": lambda r: r[0].micro_batches,
        "idle_ideal:percent": lambda r: r[0].ideal_idle,
        "idle_passes:percent": lambda r: times.passes_bubble(run, r[0].name, r[1]),
        "idle:percent": lambda r: times.measured_bubble(run, r[0].name, r[1]),
        "step:milliseconds": lambda r: times.step_seconds(run, r[0].name, r[1]),
    }


def figures(run: RunData, words: Messages, records: Sequence[SplitTrials]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, and a figure per group of `micro_batch_groups` whose
    idle share was measured."""
    splits = Splits(run)
    yield from times.crowding_notices(run, splits.pipelines, words)
    timed = times.timed_backends(splits)
    for number, group in enumerate(micro_batch_groups(splits)):
        if any(times.measured_bubble(run, arm.name, b) for arm in group for b in timed):
            yield _figure(splits, group, f"-{number + 1}" if number else "", words)


def _figure(splits: Splits, group: Group, suffix: str, words: Messages) -> Figure:
    """Return a figure of the idle share (left) and the seconds of an update (right) against the
    number of micro-batches."""
    run, backends, p = splits.run, times.timed_backends(splits), group[0].mesh.pipeline
    fine = [1 + (group[-1].micro_batches - 1) * k / 80 for k in range(81)]
    formula = LineMark(fine, [100 * (p - 1) / (m + p - 1) for m in fine], SeriesId(series=FORMULA))

    def scaled(of: Callable[[RunData, str, str], MeanInterval | None], by: float) -> list[LineMark]:
        return micro_batch_lines(
            group, backends, lambda arm, b: (s := of(run, arm.name, b)) and s.scaled(by)
        )

    def idle(arm: str, backend: str) -> str:
        share = times.measured_bubble(run, arm, backend)
        return numbers.percent(share and share.mean)

    x, names = micro_batch_axis(group, words), [arm.name for arm in group]
    shares = Panel(
        [formula, *scaled(times.measured_bubble, 100)], x, Axis(words("axis.idle"), low=0)
    )
    updates = Panel(scaled(times.step_seconds, 1e3), x, Axis(words("axis.update_ms"), low=0))
    values = {"arm": group[0], "values": times.format_values(names, backends, idle)}
    look_of = [*legend_entries(group, backends, words), THEORY]
    return build_figure(words, "bubble", [shares, updates], look_of, values, name=f"bubble{suffix}")


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData, records: Sequence[SplitTrials]) -> None:
    """Add how idle share and seconds of an update change with the number of micro-batches, and
    how far idle time exceeds the schedule's."""
    words, splits = notes.words, Splits(run)
    backends = times.timed_backends(splits)
    for group in micro_batch_groups(splits):
        for schedule, arms in by_schedule(group).items():
            if len(arms) > 1:
                ends, name = (arms[0], arms[-1]), schedule_name(schedule, words)
                idle = ([times.measured_bubble(run, arm.name, b) for arm in ends] for b in backends)
                parts = (
                    notes.format_part("from_to", backend=b, few=few, many=many)
                    for b, (few, many) in zip(backends, idle, strict=True)
                )
                notes.add_joined("idle_counts", parts, schedule=name, few=ends[0], many=ends[1])
                parts = (_update(notes, arms, b) for b in backends)
                notes.add_joined("update_counts", parts, schedule=name, model=ends[0].model)
    notes.set_anchor("table-bubble")
    notes.add_joined("above", (_excess_bubble(words, splits, b) for b in backends))


def _update(notes: Notes, arms: Group, backend: str) -> str:
    """Return the part of a sentence with the arms of the shortest and the longest update on a
    backend; empty with fewer than two arms that were timed."""
    steps = {a: s.mean for a in arms if (s := times.step_seconds(a.run, a.name, backend))}
    if len(steps) < 2:
        return ""
    best, *_, last = sorted(steps, key=lambda arm: steps[arm])
    return notes.format_part(
        "best", backend=backend, best=best, last=last, best_s=steps[best], last_s=steps[last]
    )


def _excess_bubble(words: Messages, splits: Splits, backend: str) -> str:
    """Return the sentence that says how far pipelines without a slow rank exceed the idle share of
    the schedule, in percentage points; empty if none was measured."""
    gaps, uneven = {}, []
    for arm in without_straggler(splits.pipelines):
        places = splits.run, arm.name, backend
        ideal, idle, passes = (
            arm.ideal_idle,
            times.measured_bubble(*places),
            times.passes_bubble(*places),
        )
        if ideal is not None and idle is not None and passes is not None:
            gaps[arm.name] = 100 * (idle.mean - ideal)
            uneven.append(100 * (passes - ideal))
    if not gaps:
        return ""
    close, far = (f(gaps, key=lambda name: gaps[name]) for f in (min, max))
    return words.plural(
        "say.bubble.gap",
        len(gaps),
        backend=backend,
        n=len(gaps),
        close=close,
        far=far,
        gap=median(gaps.values()),
        uneven=median(uneven),
        least=gaps[close],
        most=gaps[far],
    )


TOPIC = table_section(
    "bubble",
    620,
    reads=idle_pipelines,
    columns=columns,
    figures=figures,
    findings=findings,
    anchor="figure-bubble",
    priority=lambda run: 60 if micro_batch_groups(Splits(run)) else 0,
)
