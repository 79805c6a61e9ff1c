"""Seconds of updates on ranks that share cores: the constants, and how they are found."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.errors import UserError
from dualml.planner.here import Machine, Point, fit
from dualml.planner.layouts import Layouts
from dualml.planner.zoo import by_name

SHAPE = by_name("gpt", ["sizes.width=128", "sizes.blocks=4", "sizes.tied=false"])
WIDE = by_name("gpt", ["sizes.width=256", "sizes.blocks=4", "sizes.tied=false"])
TRUE = Machine(2, flops=2e10, bandwidth=4e9, alpha_s=4e-4, beta_s_per_byte=2e-9)
LAYOUTS = [(SHAPE, {}), (WIDE, {}), (WIDE, {"micro": 4}), (SHAPE, {"dp": 2, "micro": 8}),
           (WIDE, {"dp": 2, "micro": 8}), (SHAPE, {"pp": 2, "micro": 4})]  # fmt: skip


def layout(**keys: int) -> Layouts:
    return Layouts.one(16, **{"micro": 16, **keys})  # type: ignore[arg-type]


def points(scatter: float = 0.0) -> list[Point]:
    draw = np.random.default_rng(0)
    rows = []
    for shape, keys in LAYOUTS:
        noise = float(np.exp(scatter * draw.normal()))
        x = layout(**keys)
        rows.append(Point(str(keys), shape, x, TRUE.predict(shape, x) * noise))
    return rows


def test_the_constants_are_found() -> None:
    found = fit(points(), 2)
    assert found.cores == 2
    for key in ("flops", "bandwidth", "alpha_s", "beta_s_per_byte"):
        assert getattr(found, key) == pytest.approx(getattr(TRUE, key), rel=0.02)


def test_scatter_moves_predictions_little() -> None:
    found = fit(points(0.02), 2)
    for keys in ({"dp": 4, "micro": 4}, {"dp": 2, "pp": 2, "micro": 4}):
        x = layout(**keys)
        assert found.predict(WIDE, x) == pytest.approx(TRUE.predict(WIDE, x), rel=0.1)


def test_more_ranks_than_cores_take_turns() -> None:
    """Eight ranks on two cores compute as long as two, and their messages take longer."""
    free = Machine(2, 2e10, 4e9, alpha_s=0.0, beta_s_per_byte=0.0)
    two, eight = (free.predict(WIDE, layout(dp=n, micro=16 // n)) for n in (2, 8))
    own = 24 * WIDE.parameters / 4e9  # each of them makes the whole update
    assert eight - 4 * own == pytest.approx(two - own, rel=1e-9)
    plenty = Machine(8, 2e10, 4e9, alpha_s=0.0, beta_s_per_byte=0.0)
    assert plenty.predict(WIDE, layout(dp=8, micro=2)) == pytest.approx(eight / 4)
    with_two, with_eight = (TRUE.predict(WIDE, layout(dp=n, micro=16 // n)) for n in (2, 8))
    # 7/8 of the bytes for 1/2, by four times as many ranks on a core.
    assert with_eight - eight == pytest.approx(7 * (with_two - two), rel=0.1)


def test_a_bubble_costs_nothing_where_another_rank_has_the_core() -> None:
    one, two = (Machine(cores, 2e10, 4e9, 0.0, 0.0) for cores in (1, 2))
    x = layout(pp=2, micro=16)  # one micro-batch: all but the update is half bubble
    assert one.predict(WIDE, x) == pytest.approx(two.predict(WIDE, x), rel=0.2)
    many = layout(pp=2, micro=1)
    assert one.predict(WIDE, many) > 1.8 * two.predict(WIDE, many)


def test_too_few_are_refused() -> None:
    with pytest.raises(UserError, match="1 layouts of one rank and 2 of several"):
        fit([points()[0], points()[3], points()[4]], 2)
