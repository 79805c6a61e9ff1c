"""Split models drawn: their plans, the order of their passes, and one update of each over time."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block
from dualml.report.measures import slug
from dualml.report.presentation import shorten_list
from dualml.report.splits import events, gantt, times
from dualml.report.splits.arms import SplitArm, Splits, schedule_name, without_straggler
from dualml.report.splits.drawing import plan_figure
from dualml.report.topics import ReportSection

#: Most figures of each kind; most ranks of a drawn plan, preferred number of micro-batches.
PLANS, ORDERS, TIMELINES = 6, 5, 6
RANKS, TELLING = 4, 4
#: Keys that identify a plan regardless of its schedule and its slow ranks.
PLAN_KEYS = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")


def plans(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a drawing of each plan of at most `RANKS` ranks that looks different, at most `PLANS`
    of them."""
    splits = Splits(run)
    looks: dict[object, SplitArm] = {}
    for arm in splits:
        if 0 < len(arm.plan.get("ranks") or ()) <= RANKS:
            looks.setdefault(arm.plan_kind, arm)
    keys = {arm: [arm.plan.get(key) for key in PLAN_KEYS] for arm in splits}
    for arm in [*looks.values()][:PLANS]:
        caption = words("plans.figure", arm=arm.name, model=arm.model)
        same = [x.name for x in splits if x != arm and keys[x] == keys[arm]]
        if same:
            names = words("list.comma").join(shorten_list(same, words, 8))
            caption = words.join_sentences([caption, words("plans.same", arms=names)])
        alt = words("plans.alt", arm=arm.name, how=arm.describe(words))
        yield plan_figure(f"plan-{slug(arm.name)}", arm.plan, words, caption, alt)


def orders(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield drawings with ranks as rows and ticks as columns, one per schedule and number of
    stages, at most `ORDERS`, each for the arm with the most instructive number of micro-batches."""
    best: dict[tuple[str, int], SplitArm] = {}
    for arm in Splits(run).pipelines:
        if arm.grid is not None:
            key = (arm.schedule, arm.depth)
            best[key] = min(best.get(key, arm), arm, key=_micro_batch_distance)
    for arm in [*best.values()][:ORDERS]:
        caption = words("orders.figure", name=schedule_name(arm.schedule, words), arm=arm)
        assert arm.grid is not None
        yield gantt.schedule_figure(f"grid-{slug(arm.name)}", arm.grid, words, caption=caption)


def timelines(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a figure of one measured update, the median one, for each of `timeline_arms`: ranks as
    rows, a panel per backend, all on one time axis; none for an arm without events."""
    splits = Splits(run)
    for arm in timeline_arms(splits):
        every = {b: run.select(arm.name, b) for b in times.timed_backends(splits)}
        trials = {b: next((t for t in each if t.timelines), None) for b, each in every.items()}
        updates = {
            b: rows for b, t in trials.items() if t and (rows := events.timeline_rows(arm, t))
        }
        caption = words("timelines.figure", arm=arm.name, how=arm.describe(words))
        if any(len({row[0] for row in rows}) < arm.size for rows in updates.values()):
            caption = words.join_sentences([caption, words("timelines.unrecorded")])
        name = f"timeline-{slug(arm.name)}"
        if updates:
            yield gantt.timeline_figure(name, updates, words, caption=caption, ranks=arm.size)


def timeline_arms(splits: Splits) -> list[SplitArm]:
    """Return at most `TIMELINES` arms with recorded timelines: one per schedule of the model with
    the most schedules, then arms whose timelines look different."""
    recorded = [arm for arm in splits if any(t.timelines for t in splits.run.select(arm.name))]
    recorded = without_straggler(recorded) or recorded
    models: dict[str, dict[str, SplitArm]] = {}
    for arm in recorded:
        if arm.is_pure_pipeline:
            schedules = models.setdefault(arm.model, {})
            best = schedules.get(arm.schedule, arm)
            schedules[arm.schedule] = min(best, arm, key=_micro_batch_distance)
    arms = list(max(models.values(), key=len).values()) if models else []
    for arm in recorded:
        if _timeline_signature(arm) not in map(_timeline_signature, arms):
            arms.append(arm)
    return arms[:TIMELINES]


def _micro_batch_distance(arm: SplitArm) -> int:
    """Return how far an arm's number of micro-batches is from the most instructive one,
    `TELLING`."""
    return abs(arm.micro_batches - TELLING)


def _timeline_signature(arm: SplitArm) -> tuple[object, ...]:
    """Return a key that is equal for arms whose timelines look the same."""
    return (arm.plan_kind, arm.schedule if arm.is_pure_pipeline else "", arm.split.arrival)


TOPICS = (
    ReportSection("plans", 60, plans, group="principle"),
    ReportSection("orders", 70, orders, group="principle"),
    ReportSection("timelines", 610, timelines),
)
