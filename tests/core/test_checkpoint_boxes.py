"""Boxes compared with sets of indices: intersection, remainder, and cover of a tensor."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.runner.checkpoint.boxes import IndexBox, find_overlap, range_boxes, uncovered_boxes

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)


@st.composite
def boxes(draw: Any, most: int = 5) -> tuple[tuple[int, ...], list[IndexBox]]:
    """Draw a shape and boxes inside it."""
    shape = draw(SHAPES)
    chosen = []
    for _ in range(draw(st.integers(0, most))):
        ends = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
        chosen.append(IndexBox(tuple(a for a, _ in ends), tuple(b - a for a, b in ends)))
    return shape, chosen


def indices(box: IndexBox) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(a, b) for a, b in zip(box.offset, box.end, strict=True))))


@given(boxes())
def test_what_boxes_share_and_leave_is_what_their_indices_do(case: Any) -> None:
    shape, chosen = case
    everything = indices(IndexBox.full(shape))
    assert len(everything) == IndexBox.full(shape).volume
    for a, b in itertools.product(chosen, chosen):
        common = a.intersect(b)
        assert indices(a) & indices(b) == (indices(common) if common else set())
        rest = list(a.subtract(b))
        assert set().union(*map(indices, rest)) == indices(a) - indices(b)
        assert sum(box.volume for box in rest if box.volume) == len(indices(a) - indices(b))
    left = uncovered_boxes(shape, chosen)
    assert set().union(*map(indices, left)) == everything - set().union(*map(indices, chosen))
    meet = [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(chosen), 2)
        if indices(a) & indices(b)
    ]
    found = find_overlap(chosen)
    assert (found in meet) if meet else found is None


@given(boxes(most=1), st.integers(1, 20))
def test_runs_are_the_box_in_c_order(case: Any, most: int) -> None:
    shape, chosen = case
    array = np.arange(IndexBox.full(shape).volume).reshape(shape)
    for box in chosen:
        runs = [array[run.slices].ravel() for run in box.split_runs(most)]
        assert max(map(len, runs)) <= most
        np.testing.assert_array_equal(np.concatenate(runs), array[box.slices].ravel())


@given(SHAPES, st.data())
@settings(max_examples=200)
def test_a_range_of_a_flat_tensor_in_boxes(shape: tuple[int, ...], data: Any) -> None:
    size = int(np.prod(shape, dtype=int))
    begin, end = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
    array, found = np.arange(size).reshape(shape), range_boxes(shape, begin, end)
    parts = [array[box.slices].ravel() for box in found]
    np.testing.assert_array_equal(np.concatenate([np.arange(0), *parts]), np.arange(begin, end))
    assert len(found) <= max(1, 2 * len(shape) - 1)


def test_a_mesh_of_many_ranks_is_checked_at_once() -> None:
    """64 × 64 slices of a matrix are checked quickly: comparing all pairs would be eight million
    comparisons."""
    mesh = [IndexBox((8 * i, 8 * j), (8, 8)) for i in range(64) for j in range(64)]
    assert find_overlap(mesh) is None
    assert uncovered_boxes((512, 512), mesh) == []
    assert uncovered_boxes((512, 512), mesh[:-1]) == [mesh[-1]]
    assert find_overlap([*mesh, IndexBox((3, 3), (1, 1))]) == (0, len(mesh))


@pytest.mark.parametrize(
    ("box", "shape", "fits"),
    [
        (IndexBox((0,), (3,)), (3,), True),
        (IndexBox((1,), (3,)), (3,), False),
        (IndexBox((0,), (3,)), (3, 1), False),
        (IndexBox((), ()), (), True),
        (IndexBox((-1,), (1,)), (3,), False),
        (IndexBox((3,), (0,)), (3,), True),
    ],
)
def test_whether_a_box_lies_inside(box: IndexBox, shape: tuple[int, ...], fits: bool) -> None:
    assert box.fits(shape) is fits
