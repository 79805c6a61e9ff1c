"""Split models drawn: their plans, the order of their passes, and one update of each over time."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.blocks import Block
from dualml.report.measures import slug
from dualml.report.shown import several
from dualml.report.splits import events, gantt, times
from dualml.report.splits.arms import SplitArm, Splits, healthy, schedule_name
from dualml.report.splits.drawing import plan_figure
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

#: Most figures of each kind; most ranks of a drawn plan, preferred number of micro-batches.
PLANS, ORDERS, TIMELINES = 6, 5, 6
RANKS, TELLING = 4, 4
#: Keys that identify a plan regardless of its schedule and its slow ranks.
SAME = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")


def plans(run: Run, words: Words) -> Iterator[Block]:
    """Yield a drawing of each plan that looks different."""
    splits = Splits(run)
    looks: dict[object, SplitArm] = {}
    for arm in splits:
        if 0 < len(arm.plan.get("ranks") or ()) <= RANKS:
            looks.setdefault(arm.look, arm)
    keys = {arm: [arm.plan.get(key) for key in SAME] for arm in splits}
    for arm in [*looks.values()][:PLANS]:
        caption = words("plans.figure", arm=arm.name, model=arm.model)
        same = [x.name for x in splits if x != arm and keys[x] == keys[arm]]
        if same:
            names = words("list.comma").join(several(same, words, 8))
            caption = words.sentences([caption, words("plans.same", arms=names)])
        alt = words("plans.alt", arm=arm.name, how=arm.how(words))
        yield plan_figure(f"plan-{slug(arm.name)}", arm.plan, words, caption, alt)


def orders(run: Run, words: Words) -> Iterator[Block]:
    """Yield schedules as ranks and ticks, each for the arm with the most instructive number of
    micro-batches."""
    best: dict[tuple[str, int], SplitArm] = {}
    for arm in Splits(run).pipelines:
        if arm.grid is not None:
            key = (arm.schedule, arm.depth)
            best[key] = min(best.get(key, arm), arm, key=_far)
    for arm in [*best.values()][:ORDERS]:
        caption = words("orders.figure", name=schedule_name(arm.schedule, words), arm=arm)
        assert arm.grid is not None
        yield gantt.schedule(f"grid-{slug(arm.name)}", arm.grid, words, caption=caption)


def timelines(run: Run, words: Words) -> Iterator[Block]:
    """Yield measured timelines with ranks as rows, backends on one time axis."""
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
    """Return one arm per schedule of the model with the most schedules, then arms whose timelines
    look different."""
    recorded = [arm for arm in splits if any(t.timelines for t in splits.run.select(arm.name))]
    recorded = healthy(recorded) or recorded
    models: dict[str, dict[str, SplitArm]] = {}
    for arm in recorded:
        if arm.by_layer:
            schedules = models.setdefault(arm.model, {})
            best = schedules.get(arm.schedule, arm)
            schedules[arm.schedule] = min(best, arm, key=_far)
    arms = list(max(models.values(), key=len).values()) if models else []
    for arm in recorded:
        if _look(arm) not in map(_look, arms):
            arms.append(arm)
    return arms[:TIMELINES]


def _far(arm: SplitArm) -> int:
    return abs(arm.micro_batches - TELLING)


def _look(arm: SplitArm) -> tuple[object, ...]:
    return (arm.look, arm.schedule if arm.by_layer else "", arm.split.arrival)


TOPICS = (
    Topic("plans", 60, plans, part="principle"),
    Topic("orders", 70, orders, part="principle"),
    Topic("timelines", 610, timelines),
)
