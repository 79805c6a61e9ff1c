"""Building blocks of ranks in one process: a model in segments and an update in buckets, on every
backend against the reference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conformance.backends import REFEREE, ability
from conformance.layer_cases import BATCH, SEED, case, drawn, samples, weights

from dualml.algorithms.model.layers import Branch, Dropout, Linear, Merge, Tanh
from dualml.algorithms.optim import SGD, LRSchedule
from dualml.backend import Backend, GradientAccess, PipelineStages, Segment, TrainingSpec
from dualml.common.distance import distance

SPEC = case((4,), Linear(4, 6), Tanh(), Branch(), Linear(6, 6), Dropout(0.3), Merge(), Linear(6, 3))
#: Segment boundaries: with one tensor on the stack, with two, and with one again.
CUTS = (0, 3, 5, 7)
#: Samples of the two micro-batches.
MICRO = (np.array([0, 3, 4]), np.array([1, 5, 2]))
RULE = SGD(lr=0.1, momentum=0.9)
SCHEDULE = LRSchedule(kind="step", every=1, gamma=0.5)
UPDATES = 3
#: Tolerance of float32 against float64 over a few dozen operations: some units in the last place
#: (2⁻²³).
FLOAT32 = 4e-6


def recipe(chunk: int = 256) -> TrainingSpec:
    x, y = samples(SPEC)
    return TrainingSpec(
        spec=SPEC,
        weights=weights(SPEC),
        rule=RULE,
        schedule=SCHEDULE,
        x=x,
        y=y,
        updates=UPDATES,
        chunk=chunk,
        seed=SEED,
    )


def stage_of(backend: Backend) -> Any:
    depths = [0, *SPEC.open_branches().values()]
    segments = [Segment(SPEC.layers[a:b], 1 + depths[a], {}) for a, b in pairwise(CUTS)]
    stage = ability(backend, PipelineStages).stage(segments, recipe(), first=True, last=True)
    stage.load(weights(SPEC), recipe().initial_state(), 0)
    return stage


def training_of(backend: Backend, chunk: int = 256) -> Any:
    return backend.training(recipe(chunk))


def distances_over_bound(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, float]:
    """Return the tensors that differ by more than a rounding, with their distance."""
    assert list(found) == list(wanted)
    gaps = {name: distance(np.asarray(found[name]), wanted[name]) for name in wanted}
    return {name: gap for name, gap in gaps.items() if gap > FLOAT32}


def pass_through(stage: Any) -> list[tuple[Any, float]]:
    """Run both micro-batches forward, then both backward, as a pipeline does; return losses and
    shares."""
    stage.zero_grad()
    losses = []
    for micro, part in enumerate(MICRO):
        values = stage.forward(0, micro, (stage.samples(part),))
        values = stage.forward(1, micro, values, drawn(SPEC, part))
        losses.append(stage.loss(micro, values, stage.labels(part)))
    shares = [len(part) / BATCH for part in MICRO]
    for micro, share in enumerate(shares):
        lazy, flow = stage.loss_backward(micro, share)
        losses[micro] = lazy if losses[micro] is None else losses[micro]
        flow = stage.backward(1, micro, flow)
        assert stage.backward(0, micro, flow) is None
    return list(zip(losses, shares, strict=True))


def test_segments_are_the_whole_model(backend: Backend) -> None:
    """Gradients over two micro-batches, the optimizer's update, and the evaluation equal the
    reference's."""
    stage, referee = stage_of(backend), training_of(REFEREE)
    batch = np.concatenate(MICRO)
    for step in (1, 2):
        referee.step_count = 0  # the masks of the first update
        loss, gradients = referee.gradient(batch)
        lazy = pass_through(stage)
        assert backend.materialize_losses([stage.combine_losses(lazy)])[0] == pytest.approx(
            loss, rel=FLOAT32
        )
        assert distances_over_bound(stage.gradients(), gradients) == {}
        stage.update(step)
        referee.update(gradients, step)
        assert distances_over_bound(stage.weights(), referee.weights()) == {}
        assert (
            distances_over_bound(
                stage.state()["momentum_buffer"], referee.state()["momentum_buffer"]
            )
            == {}
        )
    before, flat = (
        stage.gradients(),
        stage.flatten_gradients(),
    )  # what the ranks of one stage add up
    stage.assign_flat_gradients(flat + flat)
    assert (
        distances_over_bound(stage.gradients(), {name: 2 * g for name, g in before.items()}) == {}
    )
    x, y = samples(SPEC)
    values, seen = (stage.inputs(x),), []
    for segment in range(3):
        values, outputs = stage.infer(segment, values)
        seen += outputs
    assert len(seen) == len(SPEC.layers)
    wanted_loss, wanted = referee.evaluate(x, y)
    loss, predicted = stage.evaluate(values[-1], stage.targets(y))
    assert loss == pytest.approx(wanted_loss, rel=FLOAT32)
    assert np.array_equal(predicted, wanted)


@pytest.mark.parametrize("chunk", [256, 4])
def test_an_update_in_pieces_is_the_update(backend: Backend, chunk: int) -> None:
    """An update by two gradient buckets equals the plain update, also with batches that are
    split."""
    names = list(SPEC.parameters())
    layout = [names[:3], names[3:]]
    ours, referee = training_of(backend, chunk), training_of(REFEREE)
    pieces = ability(ours, GradientAccess).make_buckets(layout)
    batch = np.array([5, 1, 0, 2, 4, 3])
    wanted_loss, wanted = referee.gradient(batch)
    loss, gradients = pieces.gradient(batch, 0.25)
    assert backend.materialize_losses([loss])[0] == pytest.approx(wanted_loss, rel=FLOAT32)
    named = pieces.unflatten(gradients)
    assert distances_over_bound(named, {name: 0.25 * g for name, g in wanted.items()}) == {}
    pieces.update(gradients, 1)
    referee.update({name: 0.25 * g for name, g in wanted.items()}, 1)
    assert distances_over_bound(ours.weights(), referee.weights()) == {}
    flat = pieces.parameters()
    assert distances_over_bound(pieces.unflatten(flat), referee.weights()) == {}
    pieces.assign([part + part for part in flat])
    assert (
        distances_over_bound(ours.weights(), {name: 2 * w for name, w in referee.weights().items()})
        == {}
    )
    nothing, zeros = pieces.gradient(np.zeros(0, np.int64), 1.0)
    assert nothing is None
    assert all(not g.any() for g in pieces.unflatten(zeros).values())


def test_the_comparison_can_fail() -> None:
    w = weights(SPEC)
    assert distances_over_bound(w, w) == {}
    assert list(distances_over_bound({**w, "l0.bias": w["l0.bias"] * (1 + 1e-4)}, w)) == ["l0.bias"]
