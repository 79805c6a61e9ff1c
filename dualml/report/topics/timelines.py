"""One update of pipelines and their like in time: ranks as lines, backends on one axis."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.blocks import Block
from dualml.report.measures import slug
from dualml.report.splits import events, gantt, times
from dualml.report.splits.arms import SplitArm, Splits, healthy
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

MOST, TELLING = 6, 4  # figures, micro-batches that show what a schedule does


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    for arm in chosen(splits):
        every = {b: run.select(arm.name, b) for b in times.compared(splits)}
        trials = {b: next((t for t in each if t.timelines), None) for b, each in every.items()}
        updates = {b: rows for b, t in trials.items() if t and (rows := events.rows(arm, t))}
        caption = words("timelines.figure", arm=arm.name, how=arm.how(words))
        if any(len({row[0] for row in rows}) < arm.size for rows in updates.values()):
            caption = words.sentences([caption, words("timelines.unrecorded")])
        name = f"timeline-{slug(arm.name)}"
        if updates:
            yield gantt.timeline(name, updates, words, caption=caption, ranks=arm.size)


def chosen(splits: Splits) -> list[SplitArm]:
    """Of the model with the most schedules one arm for each, then what else looks different."""
    recorded = [arm for arm in splits if any(t.timelines for t in splits.run.select(arm.name))]
    recorded = healthy(recorded) or recorded
    models: dict[str, dict[str, SplitArm]] = {}
    for arm in recorded:
        if arm.by_layer:
            schedules = models.setdefault(arm.model, {})
            best = schedules.get(arm.schedule, arm)
            nearer = abs(arm.micro_batches - TELLING) < abs(best.micro_batches - TELLING)
            schedules[arm.schedule] = arm if nearer else best
    arms = list(max(models.values(), key=len).values()) if models else []
    for arm in recorded:
        if _look(arm) not in map(_look, arms):
            arms.append(arm)
    return arms[:MOST]


def _look(arm: SplitArm) -> tuple[object, ...]:
    return (arm.look, arm.schedule if arm.by_layer else "", arm.split.arrival)


TOPIC = Topic("timelines", 610, evidence)
