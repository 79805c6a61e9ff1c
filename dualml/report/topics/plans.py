"""Split plans as drawings, and the schedules of the pipelines as ranks and ticks."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.blocks import Block
from dualml.report.listing import several
from dualml.report.measures import slug
from dualml.report.splits import gantt
from dualml.report.splits.arms import SplitArm, Splits, schedule_name
from dualml.report.splits.drawing import plan_figure
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

PLANS, RANKS = 6, 4  # figures, and ranks that fit into one
ORDERS, TELLING = 5, 4  # figures, micro-batches that show what a schedule does
#: What makes a plan, whatever its order and its slow ranks.
SAME = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")


def plans(run: Run, words: Words) -> Iterator[Block]:
    """One for each that looks different."""
    splits = Splits(run)
    looks: dict[object, SplitArm] = {}
    for arm in splits:
        if 0 < len(arm.plan.get("ranks") or ()) <= RANKS:
            looks.setdefault(arm.look, arm)
    for arm in [*looks.values()][:PLANS]:
        caption = words("plans.figure", arm=arm.name, model=arm.model)
        same = [x.name for x in splits if x != arm
                and all(x.plan.get(key) == arm.plan.get(key) for key in SAME)]  # fmt: skip
        if same:
            names = words("list.comma").join(several(same, words, 8))
            caption = words.sentences([caption, words("plans.same", arms=names)])
        alt = words("plans.alt", arm=arm.name, how=arm.how(words))
        yield plan_figure(f"plan-{slug(arm.name)}", arm.plan, words, caption, alt)


def orders(run: Run, words: Words) -> Iterator[Block]:
    """Of every schedule the arm whose number of micro-batches shows it best."""
    best: dict[tuple[str, int], SplitArm] = {}
    for arm in Splits(run).pipelines:
        if arm.grid is not None:
            key = (arm.schedule, arm.depth)
            best[key] = min(best.get(key, arm), arm, key=lambda x: abs(x.micro_batches - TELLING))
    for arm in [*best.values()][:ORDERS]:
        caption = words("orders.figure", arm=arm, name=schedule_name(arm.schedule, words))
        assert arm.grid is not None
        yield gantt.schedule(f"grid-{slug(arm.name)}", arm.grid, words, caption=caption)


TOPICS = (
    Topic("plans", 60, plans, part="principle"),
    Topic("orders", 70, orders, part="principle"),
)
