"""The schedules of the pipelines as ranks and ticks, each once."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.report.blocks import Block
from dualml.report.measures import slug
from dualml.report.splits import gantt
from dualml.report.splits.arms import SplitArm, Splits, schedule_name
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words

MOST, TELLING = 5, 4  # figures, micro-batches that show what a schedule does


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Of every schedule the arm whose number of micro-batches shows it best."""
    best: dict[tuple[str, int], SplitArm] = {}
    for arm in Splits(run).pipelines:
        if arm.grid is not None:
            key = (arm.schedule, arm.depth)
            best[key] = min(best.get(key, arm), arm, key=_far)
    for arm in [*best.values()][:MOST]:
        caption = words(
            "orders.figure",
            name=schedule_name(arm.schedule, words),
            m=arm.micro_batches,
            stages=words.count("stage", arm.depth),
            arm=arm.name,
        )
        assert arm.grid is not None
        yield gantt.schedule(f"grid-{slug(arm.name)}", arm.grid, words, caption=caption)


def _far(arm: SplitArm) -> int:
    return abs(arm.micro_batches - TELLING)


TOPIC = Topic("orders", 70, evidence, part="principle")
