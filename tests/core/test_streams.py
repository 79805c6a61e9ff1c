"""Recurrent models in an experiment file, and the order in which their state is carried over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.layers import GRU, LSTM, RNN
from dualml.algorithms.model.streams import (
    SLOT,
    HiddenStates,
    extra_inputs,
    merge_hidden_states,
    stream_indices,
)
from dualml.common.errors import UserError
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.plan import Plan
from dualml.experiment.store.plan import restore_plan, save_plan

TOML = """
name = "tiny"
model = "rnn_lm"
title = { en = "Tiny", zh = "小" }
recurrent = { width = 8, hidden = 8 }
[data]
name = "sentences"
words = 60
length = 8
train = 50
test = 10
[arms.plain]
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 10
updates = 3
[arms.gru]
recurrent = { rnn_type = "gru", layers = 2, tied = true }
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 10
updates = 3
[arms.stateful]
recurrent = { stateful = true }
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 12
updates = 6
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def plan_of(lab: Path, *overrides: str) -> Plan:
    experiment = load(str(lab), overrides=overrides, arms=["all"])
    sizes: dict[str, Any] = {"words": experiment.data.words, "length": experiment.data.length}
    return freeze(experiment, load_data(experiment.data.name, explicit=True, **sizes))


# --- the model ------------------------------------------------------------------------------------


def test_settings_make_the_model_they_say() -> None:
    spec = model(
        "rnn_lm",
        words=30,
        length=5,
        recurrent={
            "rnn_type": "relu",
            "layers": 3,
            "width": 8,
            "hidden": 8,
            "dropout": 0.1,
            "tied": True,
        },
    )
    assert [name for name, _ in spec.layers] == [
        "embedding",
        "dropout1",
        "rnn",
        "dropout2",
        "rnn2",
        "dropout3",
        "rnn3",
        "dropout4",
        "decoder",
    ]
    assert dict(spec.layers)["rnn2"] == RNN(8, 8, nonlinearity="relu")
    assert "decoder.weight" not in spec.parameters()
    assert spec.parameters()["decoder.bias"] == (30,)
    assert model("rnn_lm", recurrent={"rnn_type": "lstm"}) == model("rnn_lm")
    assert dict(model("rnn_lm", recurrent={"rnn_type": "gru"}).layers)["gru"] == GRU(64, 128)
    assert model("rnn_lm", recurrent={"stateful": True}).stateful
    assert not model("rnn_lm").stateful


def test_tables_start_within_the_range_and_the_bias_at_zero() -> None:
    for tied in (False, True):
        settings = {"width": 64, "hidden": 64, "init_range": 0.1, "tied": tied}
        start = initial_weights(model("rnn_lm", words=50, recurrent=settings), 0)
        tables = [start["embedding.weight"]] + ([] if tied else [start["decoder.weight"]])
        for table in tables:
            assert 0.095 < np.abs(table).max() <= 0.1
            assert table.std() == pytest.approx(0.1 / 3**0.5, rel=0.05)
        assert (start["decoder.bias"] == 0).all()
        assert np.abs(start["lstm.bias_hh_l0"]).max() <= 1 / 8


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tied": True}, "width = 64 and hidden = 128 must be equal; set width = 128"),
        ({"rnn_type": "lstn"}, "must be one of lstm, gru, tanh, relu; received 'lstn'.*'lstm'"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        model("rnn_lm", recurrent=settings)


def test_an_arm_has_its_own_settings_over_those_of_the_experiment(
    lab: Path, tmp_path: Path
) -> None:
    plan = plan_of(lab)
    assert list(plan.models) == ["rnn_lm.gru.layers2.tied", "rnn_lm.stateful"]
    gru = plan.spec_of(plan.experiment.arms["gru"])
    assert dict(gru.layers)["gru2"] == GRU(8, 8)
    assert plan.spec_of(plan.experiment.arms["plain"]) == plan.spec
    assert dict(plan.spec.layers)["lstm"] == LSTM(8, 8)
    own = plan.initial(0, plan.experiment.arms["gru"])
    assert own["gru.weight_hh_l0"].shape == (24, 8)
    assert plan.experiment.arms["gru"].model == "rnn_lm"
    save_plan(plan, tmp_path / "plan")
    again = restore_plan(tmp_path / "plan", plan.hash)
    assert (again.spec, again.models) == (plan.spec, plan.models)
    assert again.hash == plan.hash


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (['recurrent.rnn_typ="gru"'], "unknown key recurrent.rnn_typ; did you mean 'rnn_type'"),
        (['recurrent.rnn_type="elman"'], "recurrent.rnn_type"),
        (["recurrent.layers=0"], "recurrent.layers"),
        (["arms.gru.recurrent.width=9"], "arms.gru: recurrent.tied .* width = 9 and hidden = 8"),
        (["sizes.width=9"], "sizes are of the models gpt, gpt_llama, resnet18, resnet18_cifar"),
    ],
)
def test_wrong_settings_of_an_experiment(lab: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan_of(lab, *overrides)


# --- the order ------------------------------------------------------------------------------------


def test_a_stateful_arm_reads_streams_in_order(lab: Path) -> None:
    plan = plan_of(lab)
    arm = plan.experiment.arms["stateful"]
    order = plan.streams(arm, 0)
    assert order is not None
    assert order.shape == (4, 12)  # of 50 windows two are not read
    assert (np.diff(order, axis=0) == 1).all()
    feed = plan.batch_sampler(arm, 0)
    assert [feed.batch(step).tolist() for step in (1, 4, 5)] == [
        order[0].tolist(),
        order[3].tolist(),
        order[0].tolist(),
    ]
    assert plan.order["train"].tolist() == list(range(50))  # which stand together in the text
    assert plan.streams(plan.experiment.arms["plain"], 0) is None
    other = plan_of(lab, "arms.stateful.recurrent.stateful=false")
    assert other.order["train"].tolist() != list(range(50))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (['partition.name="random_partition"', "world_size=2"], "assigns windows out of order"),
        (["world_size=2"], "use split, or world_size = 1"),
        (["samples=20"], "samples draws windows"),
        (["batch_size=0"], "has no next one; set batch_size"),
        (["chunk=4"], "raise accumulation_batch to batch_size"),
        (['precision="bf16"'], "states are carried in float32"),
        (['recompute=["lstm"]'], "leave out recompute"),
        (["zero=1", "world_size=2"], "zero and offload"),
        (["batch_size=51"], "needs at least 51 windows of the text; there are 50"),
    ],
)
def test_what_a_state_does_not_go_with(lab: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=rf"arms.stateful: .*{said}"):
        plan_of(lab, *(f"arms.stateful.{text}" for text in overrides))


# --- the states -----------------------------------------------------------------------------------


def test_states_are_found_by_the_number_of_a_sample() -> None:
    spec = model("rnn_lm", words=9, length=3, recurrent={"hidden": 2, "stateful": True})
    hidden = HiddenStates(spec.layers, stream_indices(7, 3))
    assert hidden.initial_states(np.array([0, 2]))["lstm"].shape == (2, 2, 2)
    ended = np.arange(12.0).reshape(3, 2, 2) + 1
    hidden.store_final_states(np.array([4, 0, 2]), {"lstm": ended})
    given = hidden.initial_states(np.array([1, 5, 2, 3]))["lstm"]
    np.testing.assert_array_equal(given, [ended[1], ended[0], 0 * ended[0], ended[2]])
    state = hidden.state()
    assert hidden.load({"exp_avg": {}, **state}) == {"exp_avg": {}}
    np.testing.assert_array_equal(hidden.initial_states(np.array([3]))["lstm"][0], ended[2])
    hidden.load({})
    assert not hidden.initial_states(np.array([3]))["lstm"].any()


def test_ranks_put_together_the_streams_that_each_came_to() -> None:
    spec = model("rnn_lm", words=9, length=3, recurrent={"hidden": 2, "stateful": True})
    own, other = (HiddenStates(spec.layers, stream_indices(8, 4)) for _ in range(2))
    own.store_final_states(np.array([0, 2]), {"lstm": np.ones((2, 2, 2))})
    other.store_final_states(np.array([4, 6]), {"lstm": np.full((2, 2, 2), 5.0)})
    merge_hidden_states(own, [own.tables, other.tables], [own.fresh, other.fresh])
    assert own.state()[SLOT]["lstm"][:, 0, 0].tolist() == [1, 1, 5, 5]


def test_masks_and_states_stand_in_the_order_of_the_layers() -> None:
    settings = {"layers": 2, "dropout": 0.1, "stateful": True}
    spec = model("rnn_lm", words=9, length=3, recurrent=settings)
    hidden = HiddenStates(spec.layers, None)
    given = extra_inputs(spec, 0, 1, np.array([3, 4]), hidden)
    assert list(given) == ["dropout1", "lstm", "dropout2", "lstm2", "dropout3"]
    assert given["lstm"].shape == (2, 2, 128)
    assert not given["lstm"].any()
