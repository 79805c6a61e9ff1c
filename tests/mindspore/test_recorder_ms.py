"""A MindSpore recorder calls a step again: schedules and averages must not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.backends import require

require("mindspore")
import mindspore as ms  # noqa: E402
from mindspore import nn, ops  # noqa: E402

from dualml.parity.models.judge import judge_traces  # noqa: E402
from dualml.parity.models.trace import Trace  # noqa: E402
from dualml_ms.record import Recorder  # noqa: E402

STEPS = 3
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(STEPS, 8, 6)).astype(np.float32)
Y = DRAW.integers(0, 3, (STEPS, 8)).astype(np.int32)
W = DRAW.normal(size=(3, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def pynative() -> Iterator[None]:
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=mode)


class Script:
    """A training script with a warm-up, which sets the optimizer's rate, and an average.

    Args:
        folder: of the trace.
        times: what the warm-up goes on by after each step.
        inside: whether the function of a step sets the rate.
        record: whether a recorder makes the steps.
    """

    def __init__(self, folder: Path, times: int, inside: bool, record: bool = True) -> None:
        model = nn.Dense(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
        optimizer = nn.Adam(model.trainable_params(), learning_rate=1.25e-3)
        average, criterion = nn.Dense(6, 3, weight_init="zeros"), nn.CrossEntropyLoss()
        recorder = Recorder(model, folder, optimizer, steps=STEPS) if record else None
        self.model, self.average, self.count = model, average, 0
        count = 0

        def forward(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
            return criterion(model(x), y)

        gradient = ms.value_and_grad(forward, None, optimizer.parameters)

        def advance() -> None:
            nonlocal count
            count += times
            ops.assign(optimizer.learning_rate, ms.Tensor(1e-2 * min(1.0, (count + 1) / 8)))

        def step(x: ms.Tensor, y: ms.Tensor) -> None:
            loss, gradients = gradient(x, y)
            if recorder is not None:
                recorder.saw(loss=loss, gradients=gradients)
            optimizer(gradients)
            ops.assign(average.weight, average.weight * 0.5 + model.weight * 0.5)
            if inside:
                advance()

        for x, y in zip(X, Y, strict=True):
            batch = ms.Tensor(x), ms.Tensor(y)
            if recorder is None:
                step(*batch)
            else:
                recorder.run(step, *batch)
            if not inside:
                advance()
        self.count, self.recorder = count, recorder

    @property
    def trace(self) -> Trace:
        assert self.recorder is not None
        return self.recorder.trace


@pytest.mark.parametrize("inside", [False, True])
def test_a_schedule_four_times_as_fast_is_different(tmp_path: Path, inside: bool) -> None:
    usual, fast = (Script(tmp_path / str(n), n, inside).trace for n in (1, 4))
    for trace in (usual, fast):
        assert trace.envelope
        assert max(trace.envelope.values()) < 1e-4
    found = judge_traces(usual, fast)
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.step, found.first.phase) == (2, "update")
    assert judge_traces(usual, Script(tmp_path / "again", 1, inside).trace).equal


def test_a_recorded_script_ends_where_it_ends_without_a_recorder(tmp_path: Path) -> None:
    alone, recorded = (Script(tmp_path / str(r), 1, True, record=r) for r in (False, True))
    assert alone.count == recorded.count == STEPS
    for name in ("model", "average"):
        pair: Any = [getattr(one, name).weight.asnumpy() for one in (alone, recorded)]
        np.testing.assert_array_equal(*pair)


def test_momentum_in_a_list_of_the_script_is_put_back(tmp_path: Path) -> None:
    model = nn.Dense(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
    parameters = model.trainable_params()
    momentum = [ms.Parameter(ops.zeros_like(p), name=f"m{i}") for i, p in enumerate(parameters)]
    gradient = ms.value_and_grad(lambda x: model(x).square().mean(), None, parameters)
    recorder = Recorder(model, tmp_path, steps=STEPS)

    def step(x: ms.Tensor) -> None:
        loss, gradients = gradient(x)
        recorder.saw(loss=loss, gradients=gradients)
        for p, m, g in zip(parameters, momentum, gradients, strict=True):
            m.set_data(0.9 * m + g)
            p.set_data(p - 0.1 * m)

    for x in X:
        recorder.run(step, ms.Tensor(x))
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4


def test_settings_start_and_micro_batches_are_recorded(tmp_path: Path) -> None:
    model = nn.Dense(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
    weight, bias = model.trainable_params()
    groups = [{"params": [weight], "weight_decay": 0.1}, {"params": [bias], "lr": 0.5}]
    optimizer = nn.Adagrad(groups, accum=0.2, learning_rate=0.1)
    gradient = ms.value_and_grad(lambda x: model(x).square().mean(), None, optimizer.parameters)
    recorder = Recorder(model, tmp_path, optimizer, steps=1)
    with recorder.step(ms.Tensor(X[0])):
        parts = [gradient(ms.Tensor(x))[1] for x in np.split(X[0], 2)]
        for one in parts:
            recorder.saw(local_gradients=one)
        total = [(a + b) / 2 for a, b in zip(*parts, strict=True)]
        recorder.saw(gradients=total)
        optimizer(tuple(total))
    names = {"weight", "bias", "weight#2", "bias#2"}
    assert set(recorder.trace.names("local", 1)) == names
    settings = {one.names[0]: one.settings for one in recorder.trace.groups}
    assert settings["weight"]["weight_decay"] == pytest.approx(0.1)
    assert (settings["bias"]["weight_decay"], settings["bias"]["lr"]) == (0.0, 0.5)
    assert recorder.trace.start is not None
    assert recorder.trace.start.slots == {"sum": pytest.approx(0.2)}


class Average(nn.Cell):
    """An average of the weights whose share of the new ones depends on a counter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
        self.updates = 0

    def update(self, weight: ms.Parameter) -> None:
        self.updates += 1
        share = 1 / (1 + self.updates)
        ops.assign(self.inner.weight, self.inner.weight * (1 - share) + weight * share)


def test_a_counter_around_a_recorded_average_is_put_back(tmp_path: Path) -> None:
    model = nn.Dense(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
    average, criterion = Average(), nn.CrossEntropyLoss()
    optimizer = nn.SGD(model.trainable_params(), learning_rate=0.1)
    recorder = Recorder(nn.CellList([model, average.inner]), tmp_path, optimizer, steps=STEPS)

    def forward(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return criterion(model(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x: ms.Tensor, y: ms.Tensor) -> None:
        loss, gradients = gradient(x, y)
        recorder.saw(loss=loss, gradients=gradients)
        optimizer(gradients)
        average.update(model.weight)

    for x, y in zip(X, Y, strict=True):
        recorder.run(step, ms.Tensor(x), ms.Tensor(y))
    assert average.updates == STEPS
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4


class Counting(nn.Dense):
    """A layer whose output depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__(6, 3, weight_init=ms.Tensor(W), bias_init="zeros")
        self.calls = 0

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        self.calls += 1
        return super().construct(x) * (1 + 1 / self.calls)


def test_a_counter_inside_of_the_model_is_put_back(tmp_path: Path) -> None:
    model, criterion = Counting(), nn.CrossEntropyLoss()
    optimizer = nn.SGD(model.trainable_params(), learning_rate=0.1)
    recorder = Recorder(model, tmp_path, optimizer, steps=STEPS)

    def forward(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return criterion(model(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x: ms.Tensor, y: ms.Tensor) -> None:
        loss, gradients = gradient(x, y)
        recorder.saw(loss=loss, gradients=gradients)
        optimizer(gradients)

    for x, y in zip(X, Y, strict=True):
        recorder.run(step, ms.Tensor(x), ms.Tensor(y))
    assert model.calls == STEPS
    assert recorder.trace.random is None
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4
