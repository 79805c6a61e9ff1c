"""Pipeline times in seconds, tensor against pipeline parallelism, and the drawings of both."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.parallel.split.order import dependencies
from dualml.parallel.split.schedules import SCHEDULES, bubble, build
from dualml.planning.cost.link import Link
from dualml.planning.cost.pipeline import PipelineTimeline, message_s, simulate_pipeline
from dualml.planning.cost.predict import predict
from dualml.planning.cost.split import (
    all_reduce_s,
    crossover_bandwidth,
    crossover_width,
    tensor_parallel_step,
    vertical_step,
)
from dualml.report.draw import draw
from dualml.report.splits import gantt

LINK = Link(5e-5, 1e-9)
TIMES = st.floats(0, 1, allow_subnormal=False)


def check(timeline: PipelineTimeline, owners: Sequence[int], travel: Sequence[float]) -> None:
    """Assert that everything runs after its inputs, one thing at a time per rank and link."""
    spans = {s.action: s for row in timeline.spans for s in row}
    arrivals = {(m.action, m.target): m.end for m in timeline.messages}
    for row in timeline.spans:
        for one, then in itertools.pairwise(row):
            assert then.start >= one.end
    for action, span in spans.items():
        for need in dependencies(action, len(owners)):
            key = (need, owners[action.stage])
            there = spans[need].end if owners[need.stage] == key[1] else arrivals[key]
            assert span.start >= there
    for m in timeline.messages:
        then = m.action.stage + (1 if m.action.kind == "F" else -1)
        assert m.start >= spans[m.action].end
        assert m.end == m.start + travel[min(m.action.stage, then)]
        assert (m.source, m.target) == (owners[m.action.stage], owners[then])
    for link in {(m.source, m.target) for m in timeline.messages}:
        mine = [m for m in timeline.messages if (m.source, m.target) == link]
        assert all(b.start >= a.end for a, b in itertools.pairwise(mine))


@given(st.data())
@settings(deadline=None)
def test_any_times_keep_the_order(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(SCHEDULES)))
    p, v = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    m = data.draw(st.integers(1, 4)) * (p if name == "interleaved" else 1)
    owners = tuple(range(p)) * v
    stages = len(owners)
    forward, backward = (data.draw(st.lists(TIMES, min_size=stages, max_size=stages)) for _ in "FB")
    travel = data.draw(st.lists(TIMES, min_size=stages - 1, max_size=stages - 1))
    grid = build(name, owners, m)
    found = simulate_pipeline(grid, forward, backward, travel, update_s=0.5)
    check(found, owners, travel)
    assert [s.action for row in found.spans for s in row] == [
        action for program in grid.programs() for action in program
    ]
    for rank in range(p):
        mine = sum(forward[s] + backward[s] for s in range(stages) if owners[s] == rank)
        assert found.busy[rank] == pytest.approx(m * mine + 0.5)
        assert found.idle[rank] + found.busy[rank] == pytest.approx(found.seconds)
    assert -1e-9 <= found.bubble < 1
    slower = simulate_pipeline(grid, forward, [2 * t for t in backward], travel, update_s=0.5)
    assert slower.seconds >= found.seconds - 1e-9


@pytest.mark.parametrize("m", [1, 4, 9])
def test_free_messages_leave_the_bubble_of_the_formula(m: int) -> None:
    """With free messages the bubble is the formula's, also when backward takes twice as long: only
    the sum matters."""
    for name in ("gpipe", "1f1b", "eager-1f1b"):
        found = simulate_pipeline(build(name, range(4), m), 1e-3, 2e-3)
        assert found.bubble == pytest.approx(bubble(4, m))
        assert found.seconds == pytest.approx((m + 3) * 3e-3)
    found = simulate_pipeline(build("interleaved", (0, 1, 2, 3) * 2, 4 * m), 0.5e-3, 1e-3)
    assert found.bubble == pytest.approx(bubble(4, 4 * m, 2))


def test_eager_hides_messages_that_one_f_one_b_waits_for() -> None:
    slow, eager = (
        simulate_pipeline(build(n, (0, 1), 16), 1.0, 2.0, 0.25) for n in ("1f1b", "eager-1f1b")
    )
    assert eager.seconds == pytest.approx(17 * 3 + 2 * 0.25)  # the first and the last one remain
    assert slow.seconds == pytest.approx(17 * 3 + 16 * 0.25)


def test_one_micro_batch_goes_there_and_back() -> None:
    found = simulate_pipeline(build("naive", (0, 1), 1), [1, 2], [3, 4], 0.5, update_s=0.25)
    assert found.seconds == 1 + 0.5 + 2 + 4 + 0.5 + 3 + 0.25
    assert found.finish == (11.25, 7.75)
    assert found.busy == (4.25, 6.25)
    assert found.live == (1, 1)
    assert found.rows()[-2:] == [(0, "0F0", "send", 1, 1.5), (1, "1B0", "send", 7.5, 8)]
    told = json.loads(json.dumps(found.describe()))
    assert told["ranks"][1][0] == {"action": "1F0", "start_s": 1.5, "end_s": 3.5}
    assert told["messages"][0]["target"] == 1


def test_messages_travel_while_ranks_compute() -> None:
    """Messages travel while ranks compute: three forward passes hide those of the first two, and no
    rank waits to send."""
    found = simulate_pipeline(build("gpipe", (0, 1), 3), 1.0, 1.0, 0.5)
    assert [s.start for s in found.spans[0][:3]] == [0, 1, 2]
    assert [s.start for s in found.spans[1][:3]] == [1.5, 2.5, 3.5]
    # A slow link carries one at a time.
    slow = simulate_pipeline(build("gpipe", (0, 1), 3), 1.0, 1.0, 2.0)
    assert [m.end for m in slow.messages[:3]] == [3, 5, 7]
    # Stages of one rank hand over for nothing.
    alone = simulate_pipeline(build("gpipe", (0, 0), 3), 1.0, 1.0, 2.0)
    assert alone.messages == ()
    assert alone.seconds == 12
    assert alone.bubble == 0


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (([1.0], 1.0, 0.0, 0.0), "forward_s: 1 times for 2 stages"),
        ((1.0, -1.0, 0.0, 0.0), "backward_s: times are finite and not negative"),
        ((1.0, 1.0, [0.0, 0.0], 0.0), "transfer_s: 2 times for 1 boundaries"),
        ((1.0, 1.0, 0.0, math.inf), "update_s: times are finite"),
    ],
)
def test_times_that_cannot_be(times: tuple[float, ...], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulate_pipeline(build("gpipe", (0, 1), 2), *times)


@pytest.mark.parametrize("m", [1, 3, 8])
@pytest.mark.parametrize("link", [Link(0, 0), LINK, Link(1e-3, 1e-7)])
def test_the_formula_of_the_vertical_split_is_the_simulation(m: int, link: Link) -> None:
    sizes, batch, rate = [784, 512, 256, 10], 64, 1e10
    flops = [2 * batch / m * a * b for a, b in itertools.pairwise(sizes)]
    best = math.inf
    for cut in (1, 2):
        forward = [sum(flops[:cut]) / rate, sum(flops[cut:]) / rate]
        message = message_s(4 * batch / m * sizes[cut], link)
        found = simulate_pipeline(
            build("gpipe", (0, 1), m), forward, [2 * t for t in forward], message
        ).seconds
        assert vertical_step(sizes, batch, m, rate, link, cut=cut) == pytest.approx(found)
        best = min(best, found)
    assert vertical_step(sizes, batch, m, rate, link) == pytest.approx(best)


def test_the_horizontal_split_term_by_term() -> None:
    batch, rate = 32, 1e9
    reduce = {d: all_reduce_s(4, 4 * batch * d, LINK) for d in (8, 16, 32, 64)}
    assert reduce[64] == pytest.approx(predict("all_reduce", 4, 4 * batch * 64, LINK).seconds)
    sizes = [8, 64, 16, 128, 32]
    flops = 6 * batch * (8 * 64 + 64 * 16 + 16 * 128 + 128 * 32)
    found = tensor_parallel_step(sizes, batch, 4, rate, LINK)
    told = reduce[16] + reduce[8] + reduce[32] + reduce[16]
    assert found == pytest.approx(flops / rate / 4 + told)
    # Nobody needs the gradient of the data; a lone last layer is computed by all.
    assert tensor_parallel_step(sizes, batch, 4, rate, LINK, whole=False) == pytest.approx(
        found - reduce[8]
    )
    assert tensor_parallel_step([*sizes, 10], batch, 4, rate, LINK) == pytest.approx(
        found + 6 * batch * 320 / rate
    )
    assert tensor_parallel_step(sizes, batch, 1, rate, LINK) == pytest.approx(flops / rate)


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 5e-5])
@pytest.mark.parametrize(("layers", "batch", "m"), [(8, 64, 4), (2, 32, 1), (12, 256, 16)])
def test_from_which_width_on(alpha: float, layers: int, batch: int, m: int) -> None:
    """The crossover is the root of the quadratic equation in the docstring."""
    rate, link = 1e11, Link(alpha, 1e-9)
    a = 3 * batch * layers / (m * rate)
    b = 4 * batch * (layers - 2 / m) * link.beta_s_per_byte
    c = 2 * (layers - 1) * alpha
    root = (b + math.sqrt(b * b + 4 * a * c)) / (2 * a)
    found = crossover_width(layers, batch, m, 2, rate, link)
    assert found is not None
    assert found == pytest.approx(max(1, math.ceil(root)), abs=1)
    for d, faster in ((found + 2, True), (found - 2, False)):
        if d > 0:
            sizes = [d] * (layers + 1)
            horizontal = tensor_parallel_step(sizes, batch, 2, rate, link)
            assert (horizontal < vertical_step(sizes, batch, m, rate, link)) is faster
    assert crossover_width(layers, batch, m, 2, 1e30, Link(1.0, 1.0)) is None


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 5e-5])
def test_from_which_bandwidth_on(alpha: float) -> None:
    layers, batch, m, d, rate = 8, 64, 4, 2048, 1e11
    sizes = [d] * (layers + 1)
    below = 3 * batch * layers * d * d / (m * rate) - 2 * (layers - 1) * alpha
    told = 4 * batch * d * (layers - 2 / m) / below
    found = crossover_bandwidth(sizes, batch, m, 2, rate, Link(alpha, 0.0))
    assert found == pytest.approx(told, rel=1e-6)
    # α alone takes longer than the bubble.
    assert crossover_bandwidth([64] * 9, batch, m, 2, 1e12, Link(1e-3, 0.0)) is None


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: vertical_step([8, 8], 4, 2, 1e9, LINK), "a layer before and after the cut"),
        (lambda: vertical_step([8, 8, 8], 4, 2, 1e9, LINK, cut=2), "2 layers, cut after 2"),
        (lambda: tensor_parallel_step([8], 4, 2, 1e9, LINK), "at least 2 sizes"),
        (lambda: tensor_parallel_step([8, 8], 4, 0, 1e9, LINK), "from 1, a rate above 0"),
        (lambda: tensor_parallel_step([8, 8], 4, 2, math.nan, LINK), "from 1, a rate above 0"),
    ],
)
def test_splits_that_cannot_be(call: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_drawings(lang: str) -> None:
    words = Messages(lang)
    grid = build("interleaved", (0, 1) * 2, 4)
    figure = gantt.schedule_figure("grid", grid, words)
    drawn = draw(figure)
    assert drawn == draw(gantt.schedule_figure("grid", grid, words))
    assert drawn.count(">3</text>") >= 2 * 4  # of micro-batch 3 in four stages
    for text in (words("pipeline.kind.F"), words("pipeline.live", n=grid.live(0))):
        assert f"{text}</text>" in drawn
    assert words("pipeline.caption.shades") in figure.caption
    found = simulate_pipeline(grid, 1e-3, 2e-3, 1e-4, 1e-4)
    rows = [(rank, text, kind, 7 + a, 7 + b) for rank, text, kind, a, b in found.rows()]
    timeline = gantt.timeline_figure("time", {"": rows}, words)
    assert f"{1e3 * found.seconds:.3g}" in timeline.alt
    assert words("pipeline.kind.send") in draw(timeline)
    assert words("pipeline.kind.reduce") not in draw(timeline)
    empty = gantt.timeline_figure("empty", {"": []}, words, caption="nothing")
    assert draw(empty)
    assert empty.caption == "nothing"
