"""Update times of ranks that share cores: the constants, and how they are determined."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.zoo import shape_by_name

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from local_machine import MachineModel, TimedLayout, fit_machine

SHAPE = shape_by_name("gpt", ["sizes.width=128", "sizes.blocks=4", "sizes.tied=false"])
WIDE = shape_by_name("gpt", ["sizes.width=256", "sizes.blocks=4", "sizes.tied=false"])
TRUE = MachineModel(
    2,
    flops=2e10,
    bandwidth=4e9,
    moves=2.0,
    call_s=1e-3,
    alpha_s=4e-4,
    sum_alpha_s=3e-4,
    beta_s_per_byte=2e-9,
    core_alpha_s=2e-4,
    core_sum_alpha_s=1e-4,
    core_beta_s_per_byte=1e-9,
    turns=0.8,
)
LAYOUTS: list[tuple[Shape, dict[str, int], int | None]] = [
    (SHAPE, {}, None),
    (WIDE, {}, None),
    (WIDE, {"micro": 4}, None),
    (SHAPE, {"dp": 2, "micro": 8}, None),
    (WIDE, {"dp": 2, "micro": 8}, None),
    (WIDE, {"dp": 2, "micro": 8, "zero": 1}, None),
    (SHAPE, {"pp": 2, "micro": 4}, None),
    (SHAPE, {"tp": 2, "micro": 8}, None),
    (WIDE, {"dp": 2, "micro": 8}, 1),
    (WIDE, {"tp": 2, "micro": 8}, 1),
]


def free(cores: int) -> MachineModel:
    """Return a machine whose messages and calls cost nothing."""
    return MachineModel(cores, 2e10, 4e9, 1.0, *7 * (0.0,), 1.0)


def layout(**keys: int) -> Layouts:
    return Layouts.from_axes(16, **{"micro": 16, **keys})  # type: ignore[arg-type]


def points(scatter: float = 0.0) -> list[TimedLayout]:
    draw = np.random.default_rng(0)
    rows = []
    for shape, keys, cores in LAYOUTS:
        x, noise = layout(**keys), np.exp(scatter * draw.normal(size=2))
        own, core = TRUE.predict(shape, x, cores), TRUE.core_seconds(shape, x, cores)
        rows.append(TimedLayout(str(keys), shape, x, own * noise[0], core * noise[1], cores))
    return rows


def test_the_constants_are_found() -> None:
    found = fit_machine(points(), 2)
    for key, value in vars(TRUE).items():
        assert getattr(found, key) == pytest.approx(value, rel=0.02), key


def test_scatter_moves_predictions_little() -> None:
    found = fit_machine(points(0.02), 2)
    for keys in ({"dp": 4, "micro": 4}, {"dp": 2, "pp": 2, "micro": 4}):
        x = layout(**keys)
        assert found.predict(WIDE, x) == pytest.approx(TRUE.predict(WIDE, x), rel=0.1)


def test_more_ranks_than_cores_take_turns() -> None:
    """Eight ranks on two cores compute as long as two ranks do, and their messages take longer."""
    two, eight = (free(2).predict(WIDE, layout(dp=n, micro=16 // n)) for n in (2, 8))
    own = 24 * WIDE.parameters / 4e9  # each of them makes the whole update
    assert eight - 4 * own == pytest.approx(two - own, rel=1e-9)
    assert free(8).predict(WIDE, layout(dp=8, micro=2)) == pytest.approx(eight / 4)


def test_a_message_takes_a_core_for_less_than_it_takes() -> None:
    two, eight = (layout(dp=n, micro=16 // n) for n in (2, 8))
    quick = replace(TRUE, core_alpha_s=0.0, core_beta_s_per_byte=0.0)
    nbytes = 4 * WIDE.parameters
    assert TRUE.core_seconds(WIDE, two) - quick.core_seconds(WIDE, two) == pytest.approx(
        2 * (2 * 2e-4 + nbytes * 1e-9)
    )
    # 7/8 of the bytes for 1/2, in 14 messages for 2, by four times as many ranks, who take turns.
    assert TRUE.core_seconds(WIDE, eight) - quick.core_seconds(WIDE, eight) == pytest.approx(
        0.8 * 8 * (14 * 2e-4 + 7 / 4 * nbytes * 1e-9)
    )


def test_a_pipeline_is_as_deep_as_cores_are_many() -> None:
    """With four stages and four micro-batches two cores idle while the first is busy; on one core
    nothing waits."""
    x = layout(pp=4, micro=4)
    work = free(4).core_seconds(WIDE, x)
    one, two = (free(cores).predict(WIDE, x) for cores in (1, 2))
    assert one == pytest.approx(work)
    assert work / 2 * 1.05 < two < work / 2 * 1.4


def test_a_bubble_costs_nothing_where_another_rank_has_the_core() -> None:
    one, two = free(1), free(2)
    x = layout(pp=2, micro=16)  # one micro-batch: all but the update is half bubble
    assert one.predict(WIDE, x) == pytest.approx(two.predict(WIDE, x), rel=0.2)
    many = layout(pp=2, micro=1)
    assert one.predict(WIDE, many) > 1.6 * two.predict(WIDE, many)  # stages are not equal


def test_too_few_are_refused() -> None:
    with pytest.raises(UserError, match="1 layouts of one rank and 2 of several"):
        fit_machine([points()[0], points()[3], points()[4]], 2)
