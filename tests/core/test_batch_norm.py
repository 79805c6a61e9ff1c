"""Batch normalisation: its statistics, and the arms that cannot keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cifar_files
import numpy as np
import pytest

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.layers import Conv2d, Flatten, Linear
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.vision import BatchNorm2d
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.experiment.arm import make_arm
from dualml.experiment.batch_norm_checks import batch_sizes
from dualml.experiment.data import load
from dualml.experiment.exactness import inexactness_reason
from dualml.experiment.freeze import freeze
from dualml.experiment.schema import Experiment
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation

SPEC = ModelSpec(
    "small",
    (2, 4, 4),
    (
        ("conv", Conv2d(2, 3, 3, bias=False)),
        ("bn", BatchNorm2d(3, momentum=0.25)),
        ("flatten", Flatten()),
        ("fc", Linear(12, 2)),
    ),
)


def training() -> Any:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(6, 2, 4, 4)).astype(np.float32), np.array([0, 1, 0, 1, 1, 0])
    recipe = TrainingSpec(
        spec=SPEC, weights=initial_weights(SPEC, 0), rule=SGD(lr=0.1), x=x, y=y, updates=3
    )
    return NumpyBackend().training(recipe)


def test_an_update_moves_the_running_statistics() -> None:
    """The running statistics move towards the mean and the unbiased variance of the convolution's
    output."""
    own, everything = training(), np.arange(6)
    x, weight = own.x.astype(float), own.weights()["conv.weight"].astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    y = np.einsum("bchwij,ocij->bohw", windows, weight)
    own.step(everything, 1)
    found = own.running_statistics()
    np.testing.assert_allclose(found["bn.running_mean"], 0.25 * y.mean(axis=(0, 2, 3)))
    unbiased = y.var(axis=(0, 2, 3), ddof=1)
    np.testing.assert_allclose(found["bn.running_var"], 0.75 + 0.25 * unbiased)


def test_looking_leaves_them() -> None:
    own, everything = training(), np.arange(6)
    own.step(everything, 1)
    before = own.weights()
    own.trace(everything, everything[:2])
    own.evaluate(own.x, own.y)
    own.measure_memory(everything)
    assert all(np.array_equal(w, before[name]) for name, w in own.weights().items())
    with own.preserving_statistics():
        own.gradient(everything)
        moved = own.running_statistics()["bn.running_mean"]
        assert not np.array_equal(moved, before["bn.running_mean"])
    assert np.array_equal(own.running_statistics()["bn.running_mean"], before["bn.running_mean"])


@pytest.mark.parametrize(
    "asked",
    [
        Aggregation(),
        Aggregation(of="parameters"),
        Aggregation(of="parameters", every=2),
        Aggregation(strategy="parameter_server_async"),
    ],
    ids=lambda asked: f"{asked.strategy}-{asked.of}-{asked.every}",
)
def test_tracing_several_ranks_leaves_them(asked: Aggregation) -> None:
    def trace(comm: Communicator) -> tuple[Any, Any]:
        own, weights = training(), initial_weights(SPEC, 0)
        trainer = parallel_trainer_class(asked)(
            NumpyBackend(), own, own.make_buckets(bucket_layout(SPEC.parameters())), comm, asked
        )
        trained = {name: weights[name].astype(float) for name in SPEC.parameters()}
        trainer.load(weights, SGD(lr=0.1).init(trained), 0)
        before = own.running_statistics()
        trainer.trace(np.arange(6), np.arange(2))
        return before, own.running_statistics()

    for before, after in run_threads(2, trace):
        assert before
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])


def test_they_are_saved_and_no_optimizer_sees_them() -> None:
    own = training()
    assert (
        list(own.weights())
        == list(SPEC.tensors())
        == [
            "conv.weight",
            "bn.weight",
            "bn.bias",
            "bn.running_mean",
            "bn.running_var",
            "fc.weight",
            "fc.bias",
        ]
    )
    assert set(own.trainable_weights()) == set(SPEC.parameters())
    own.step(np.arange(6), 1)
    weights, state = own.weights(), own.state()
    assert all(set(named) <= set(SPEC.parameters()) for named in state.values())
    other = training()
    other.load(weights, state, 1)
    assert all(np.array_equal(w, weights[name]) for name, w in other.weights().items())
    assert own.evaluate(own.x, own.y)[0] == other.evaluate(own.x, own.y)[0]


def test_several_ranks_are_not_held_against_one() -> None:
    spec = model("resnet18")
    arm = make_arm(optimizer={"name": "sgd", "lr": 0.1}, world_size=2)
    assert inexactness_reason(arm, 128, spec) == "batch_norm"
    assert inexactness_reason(arm, 128, model("lenet")) is None
    assert inexactness_reason(arm.model_copy(update={"world_size": 1}), 128, spec) is None


@pytest.fixture
def data(tmp_path: Path) -> Any:
    return load(str(cifar_files.write(tmp_path / "mine", "cifar10")), explicit=True)


def plan(data: Any, arm: dict[str, Any], **settings: Any) -> Any:
    own = {"optimizer": {"name": "sgd", "lr": 0.1}, "batch_size": 4, "updates": 1, **arm}
    table = {
        "name": "x",
        "title": {"en": "x"},
        "model": "resnet18",
        "sizes": {"width": 1},
        "data": {"name": "mine"},
        "arms": {"a": own},
        **settings,
    }
    return freeze(Experiment.model_validate(table), data)


def test_a_plan_has_statistics_and_the_datas_shape(data: Any) -> None:
    made = plan(data, {"batch_size": 11})
    assert made.spec.input_shape == (3, 32, 32)
    assert made.spec.shapes()["fc"] == (6,)
    assert set(made.initial(0)) == set(made.spec.tensors())
    assert made.initial(0)["bn1.running_var"].tolist() == [1.0]
    assert len(made.data["mean"]) == 3


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"zero": 1, "world_size": 2}, r"arms.a: .*batch normalisation.*zero = 1 does not keep"),
        ({"recompute": ["conv1"]}, r"recompute = .* does not keep them"),
        ({"split": {"stages": 2}, "world_size": 2}, "split does not keep them"),
        (
            {"batch_size": 1},
            r"needs two values per channel at least, and 'layer4.0.bn1' would have 1",
        ),
        ({"batch_size": 5}, "would have 1 of 1 sample"),  # 11 = 5 + 5 + 1
        ({"batch_size": 4, "chunk": 3}, "would have 1 of 1 sample"),
        ({"batch_size": 3, "world_size": 2}, "would have 1 of 1 sample"),
    ],
)
def test_arms_that_cannot_keep_them_are_refused(data: Any, arm: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan(data, arm)


def test_parts_of_batches_are_known() -> None:
    arm = make_arm(optimizer={"name": "sgd", "lr": 0.1}, batch_size=10, world_size=4, chunk=2)
    assert set(batch_sizes(arm, 24)) == {2, 1}  # 3 and 2 of ten, 1 of four, in chunks of two
