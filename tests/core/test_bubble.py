"""The idle time of pipeline ranks: measured, and the part that the lengths of the passes
explain."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dualml.algorithms.model import model
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.schedules import bubble as textbook
from dualml.parallel.split.timeline import COLUMNS, KINDS
from dualml.parallel.split.timeline_stats import Events, measured_bubble, replayed_bubble
from dualml.planning.cost.pipeline import PipelineTimeline, simulate_pipeline


def planned(order: str, m: int, ranks: int = 3) -> SplitPlan:
    return split_plan(model("deep_mlp"), ranks, schedule=order, micro_batches=m)


def events(told: PipelineTimeline) -> list[Events]:
    """Return the timelines that ranks with these passes would have written, starting seconds into a
    run."""
    found = []
    for spans in told.spans:
        rows = [
            (
                7,
                KINDS.index(s.action.kind),
                s.action.stage,
                s.action.micro,
                s.action.kind == "B",
                50 + s.start,
                50 + s.end,
                0,
            )
            for s in spans
        ]
        random.Random(0).shuffle(rows)  # a timeline need not be sorted
        found.append(dict(zip(COLUMNS, np.array(rows, np.float64).T, strict=True)))
    return found


@pytest.mark.parametrize("order", ["naive", "gpipe", "1f1b"])
def test_slow_messages_are_not_the_passes_doing(order: str) -> None:
    plan = planned(order, 6)
    slow = events(simulate_pipeline(plan.grid, 1.0, 2.0, transfer_s=0.5))
    free = events(simulate_pipeline(plan.grid, 1.0, 2.0))
    own = measured_bubble(free, 7)
    assert (
        own
        == pytest.approx(replayed_bubble(plan, free, 7))
        == pytest.approx(replayed_bubble(plan, slow, 7))
    )
    assert own == pytest.approx(2 / 3 if order == "naive" else textbook(3, 6))
    assert measured_bubble(slow, 7) > own + 0.05


def test_uneven_passes_are() -> None:
    """Uneven passes add idle time; the last stage sets the pace: (m − 1) · max t + Σ t, t = forward
    and backward."""
    plan, (forward, backward) = planned("1f1b", 8), ([1.0, 1.0, 3.0], [2.0, 2.0, 4.0])
    told = events(simulate_pipeline(plan.grid, forward, backward, transfer_s=0.25))
    stages = [a + b for a, b in zip(forward, backward, strict=True)]
    seconds = 7 * max(stages) + sum(stages)
    assert replayed_bubble(plan, told, 7) == pytest.approx(1 - 8 * sum(stages) / (3 * seconds))
    assert textbook(3, 8) < replayed_bubble(plan, told, 7) < measured_bubble(told, 7)


def test_an_update_without_passes_has_no_bubble() -> None:
    plan = planned("gpipe", 2)
    told = events(simulate_pipeline(plan.grid, 1.0, 1.0))
    assert measured_bubble(told, 8) == replayed_bubble(plan, told, 8) == 0
