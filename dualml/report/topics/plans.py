"""Split plans as drawings: one for each that looks different."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.blocks import Block
from dualml.report.listing import several
from dualml.report.measures import slug
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.splits.drawing import plan_figure
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

MOST, RANKS = 6, 4  # figures, and ranks that fit into one
#: What makes a plan, whatever its order and its slow ranks.
SAME = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    looks: dict[object, SplitArm] = {}
    for arm in splits:
        if 0 < len(arm.plan.get("ranks") or ()) <= RANKS:
            looks.setdefault(arm.look, arm)
    for arm in [*looks.values()][:MOST]:
        caption = words("plans.figure", arm=arm.name, model=arm.model)
        same = [x.name for x in splits if x != arm and _key(x) == _key(arm)]
        if same:
            names = words("list.comma").join(several(same, words, 8))
            caption = words.sentences([caption, words("plans.same", arms=names)])
        alt = words("plans.alt", arm=arm.name, how=arm.how(words))
        yield plan_figure(f"plan-{slug(arm.name)}", arm.plan, words, caption, alt)


def _key(arm: SplitArm) -> list[object]:
    return [arm.plan.get(key) for key in SAME]


TOPIC = Topic("plans", 60, evidence, part="principle")
