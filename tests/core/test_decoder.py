"""Decoders: the equations of their layers, their sizes, and their keys in an experiment file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, rotary_cos_sin
from dualml.algorithms.model.layers import Attention
from dualml.backend.reference.decoder import apply_rotary
from dualml.backend.reference.model import Model, forward
from dualml.common.errors import UserError
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.plan import Plan
from dualml.experiment.store.plan import restore_plan, save_plan
from dualml.parallel.split.plan import split_plan
from dualml.parallel.split.traffic import collectives


def output(layer: Any, x: np.ndarray, **own: np.ndarray) -> np.ndarray:
    (y,), _ = forward([("l", layer)], {f"l.{leaf}": w for leaf, w in own.items()}, (x,))
    return y


# --- layers ---------------------------------------------------------------------------------------


def test_an_rms_norm_is_its_equation() -> None:
    y = output(RMSNorm(2, eps=0.5), np.array([[3.0, 4.0]]), weight=np.array([1.0, -2.0]))
    np.testing.assert_allclose(y, np.array([[3.0, -8.0]]) / math.sqrt(13), rtol=1e-15)


def test_swiglu_is_its_equation() -> None:
    y = output(SwiGLU(), np.array([[1.0, -2.0, 3.0, 5.0]]))
    np.testing.assert_allclose(y, [[3 / (1 + math.exp(-1)), -10 / (1 + math.exp(2))]], rtol=1e-15)


def test_with_a_key_for_each_head_grouped_attention_is_attention() -> None:
    """A layout with all heads of queries, keys and values side by side equals one grouped by
    head."""
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 4, 2))  # q k v, heads, entries
    usual = output(Attention(4, causal=True), x.reshape(2, 5, 24))
    grouped = output(GroupedAttention(4, 4, 2, 5), x.swapaxes(2, 3).reshape(2, 5, 24))
    np.testing.assert_allclose(grouped, usual, rtol=1e-13)


def test_heads_of_a_group_share_a_key_and_a_value() -> None:
    """Grouped-query attention equals attention in which every head has its own copy of key and
    value."""
    x = np.random.default_rng(0).normal(size=(1, 5, 2, 5, 2))  # groups of 3 queries, key, value
    shared = output(GroupedAttention(6, 2, 2, 5), x.reshape(1, 5, 20))
    copied = x[:, :, :, [0, 3, 4, 1, 3, 4, 2, 3, 4]]
    each = output(GroupedAttention(6, 6, 2, 5), copied.reshape(1, 5, 36))
    np.testing.assert_allclose(shared, each, rtol=1e-13)


def test_no_position_sees_a_later_one() -> None:
    layer = GroupedAttention(2, 1, 4, 6, base=100.0)
    x = np.random.default_rng(0).normal(size=(1, 6, 16))
    before, later = output(layer, x), x.copy()
    later[:, 4:] = 7.0
    after = output(layer, later)
    np.testing.assert_array_equal(after[:, :4], before[:, :4])
    assert not np.allclose(after[:, 4:], before[:, 4:])


def test_turned_positions_count_by_their_distance() -> None:
    """With equal queries and keys everywhere, their products depend on the distance only."""
    layer = GroupedAttention(1, 1, 6, 9, base=50.0)
    q, k = np.random.default_rng(0).normal(size=(2, 6))
    rows = [apply_rotary(layer, np.tile(v, (9, 1))) for v in (q, k)]
    products = rows[0] @ rows[1].T
    for distance in range(-8, 9):
        along = np.diagonal(products, distance)
        np.testing.assert_allclose(along, along[0], rtol=1e-12)
    assert np.ptp(products) > 1
    np.testing.assert_allclose(
        apply_rotary(layer, rows[0], inverse=True), np.tile(q, (9, 1)), rtol=1e-13
    )
    cos, sin = rotary_cos_sin(layer)
    angle = 7 * 50.0 ** (-2 * 2 / 6)  # of the third pair at the position 7
    assert (cos[7, 2], sin[7, 2]) == pytest.approx((math.cos(angle), math.sin(angle)))
    assert rows[0][7, 2] == pytest.approx(q[2] * math.cos(angle) - q[5] * math.sin(angle))


# --- models ---------------------------------------------------------------------------------------


def test_the_numbers_of_parameters() -> None:
    """Parameter counts are the published ones: GPT-2 (50,257 words, 1,024 positions) 124,439,808;
    LLaMA 7 billion."""
    small = {"width": 768, "blocks": 12, "heads": 12}
    assert model("gpt", words=50_257, length=1024, sizes=small).nbytes(1) == 124_439_808
    large = {"width": 4096, "blocks": 32, "heads": 32, "kv_heads": 32, "inner": 11_008}
    llama = model("gpt_llama", words=32_000, length=2048, sizes=large)
    assert llama.nbytes(1) == 6_738_415_616
    grouped = model("gpt_llama", words=32_000, length=2048, sizes={**large, "kv_heads": 8})
    assert llama.nbytes(1) - grouped.nbytes(1) == 32 * 2 * 24 * 128 * 4096


def test_a_tied_head_is_the_embedding() -> None:
    spec = model("gpt", words=9, length=5)
    assert "head.weight" not in spec.parameters()
    weights = initial_weights(spec, 0)
    whole = Model(spec, weights)
    x, y = np.array([[1, 2, 3, 4, 5]]), np.array([[2, 3, 4, 5, 6]])
    after = forward(spec.layers[:-1], whole.weights, (x,))[0][-1]
    np.testing.assert_array_equal(whole.forward(x)[0], after @ whole.weights["embedding.weight"].T)
    _, gradients = whole.loss_and_gradients(x, y, "cross_entropy")
    assert gradients["embedding.weight"][[0, 7, 8]].any(axis=1).all(), "of words that no sample has"
    free = model("gpt", words=9, length=5, sizes={"tied": False})
    assert free.parameters()["head.weight"] == (9, 64)


def test_dropout_stands_where_gpt_2_has_it() -> None:
    spec = model("gpt", sizes={"dropout": 0.1, "blocks": 1})
    assert spec.dropout_names == ("embedding_dropout", "attention_dropout1", "mlp_dropout1")


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        (
            "gpt",
            {"width": 30},
            "gpt: sizes.width = 30 is no multiple of sizes.heads = 4; change one",
        ),
        ("gpt_llama", {"kv_heads": 3}, "sizes.heads = 4 is no multiple of sizes.kv_heads = 3"),
        (
            "gpt_llama",
            {"width": 36},
            "make heads of 9 entries, which rotary positions turn in pairs",
        ),
        ("rnn_lm", {"width": 36}, "sizes are of gpt and gpt_llama; model 'rnn_lm' has its own"),
    ],
)
def test_sizes_that_do_not_fit(name: str, sizes: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        model(name, sizes=sizes)


def test_settings_of_two_kinds_of_models_and_an_unknown_model() -> None:
    with pytest.raises(UserError, match="model 'rnn_lm' received both"):
        model("rnn_lm", sizes={"width": 8}, recurrent={"hidden": 8})
    with pytest.raises(UserError, match="unknown model 'gtp'; did you mean 'gpt'"):
        model("gtp", sizes={"width": 8})


# --- experiments ----------------------------------------------------------------------------------

TOML = """
name = "tiny-gpt"
model = "gpt"
title = { en = "Tiny", zh = "小" }
[data]
name = "sentences"
train = 60
test = 20
length = 8
[arms.adam]
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
updates = 2
[arms.llama]
model = "gpt_llama"
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
updates = 2
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def plan_of(lab: Path, *overrides: str) -> Plan:
    experiment = load(str(lab), overrides=overrides)
    data = experiment.data
    sizes: dict[str, Any] = {"words": data.words, "length": data.length, "tokens": data.tokens}
    return freeze(experiment, load_data(data.name, explicit=True, **sizes))


def test_sizes_of_an_experiment_are_those_of_its_decoders(lab: Path, tmp_path: Path) -> None:
    plan = plan_of(lab, "sizes.width=16", "sizes.heads=2", "sizes.blocks=3")
    for name, spec in {"gpt": plan.spec, **plan.models}.items():
        assert spec == model(name, 120, 8, sizes={"width": 16, "heads": 2, "blocks": 3})
    assert list(plan.models) == ["gpt_llama"]
    assert plan.experiment.describe()["sizes"] == {"width": 16, "heads": 2, "blocks": 3}
    assert "sizes" not in plan_of(lab).experiment.describe()
    save_plan(plan, tmp_path / "plan")
    again = restore_plan(tmp_path / "plan", plan.hash)
    assert (again.spec, again.models) == (plan.spec, plan.models)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sizes.widht=8"], "unknown key sizes.widht; did you mean 'width'"),
        (["sizes.context=8"], "unknown key sizes.context"),
        (["sizes.width=0"], "sizes.width"),
        (["sizes.width=18"], "gpt: sizes.width = 18 is no multiple of sizes.heads = 4"),
        (["sizes.kv_heads=3"], "sizes.heads = 4 is no multiple of sizes.kv_heads = 3"),
        (
            ["sizes.width=8", "model=rnn_lm", "arms.llama.model=rnn_lm"],
            "sizes are of the models gpt",
        ),
    ],
)
def test_wrong_sizes_of_an_experiment(lab: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan_of(lab, *overrides)


def test_characters_are_tokens_where_asked(lab: Path) -> None:
    words, characters = plan_of(lab), plan_of(lab, "data.tokens=characters")
    assert characters.data["tokens"] == "characters"
    assert "tokens" not in words.data
    assert characters.data["vocabulary"] < 40
    assert characters.hash != words.hash
    with pytest.raises(UserError, match="characters is for a text that a language model"):
        plan_of(lab, "data.tokens=characters", "data.labels=true")
    with pytest.raises(UserError, match=r"data\.tokens"):
        plan_of(lab, "data.tokens=letters")


# --- splits ---------------------------------------------------------------------------------------


def test_stages_that_share_a_table_each_have_it_and_add_up_its_gradients() -> None:
    spec = model("gpt", words=24, length=6)
    plan = split_plan(spec, 4, data=2, cut=["mlp_branch1"], micro_batches=2)
    assert plan.tied_params == {"embedding.weight": [0, 1]}
    assert plan.tied_groups() == [[0, 1], [2, 3]]
    assert all("embedding.weight" in plan.rank_stages(rank)[1] for rank in range(4))
    sums = {c.ranks: (c.calls, c.nbytes) for c in collectives(plan, 8)}
    table, (first, second) = (
        4 * 24 * 64,
        (
            4 * sum(math.prod(p.local_shape) for p in plan.rank_stages(rank)[1].values())
            for rank in (0, 1)
        ),
    )
    assert sums == {(0, 1): (1, table), (2, 3): (1, table), (0, 2): (1, first), (1, 3): (1, second)}
    assert first + second == spec.nbytes() + table
    back = split_plan(spec, 2, cut=["attention_branch1", "norm"], place=[0, 1, 0])
    assert back.tied_params == {"embedding.weight": [0, 2]}
    assert back.tied_groups() == []
    assert split_plan(model("gpt", sizes={"tied": False}), 2).tied_params == {}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "gpt",
            {"engine": "rpc"},
            r"embedding.weight is of layers in stages 0 and 1, .*engine = rpc",
        ),
        (
            "gpt",
            {"tensor": 2, "layers": {"embedding": "row"}},
            "its table is the weight of head, too",
        ),
        ("gpt", {"tensor": 2, "layers": {"head": "column"}}, "a Tied cannot be split inside"),
        ("gpt", {"cut": ["attention1"]}, "'attention1' lies inside a residual connection"),
    ],
)
def test_splits_of_a_tied_head_that_cannot_be(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        split_plan(model(name), 2, **options)


def test_trainers_cannot_share_a_tied_head() -> None:
    with pytest.raises(UserError, match=r"received trainers = 2.*tied = false"):
        split_plan(model("gpt"), 3, trainers=2, micro_batches=2)


def test_heads_and_gates_are_shared_equally_or_not_at_all() -> None:
    for name in ("gpt", "gpt_llama"):
        plan = split_plan(model(name), 2, tensor=2)
        pairs = {f"qkv{i}": "column" for i in (1, 2)} | {f"out{i}": "row" for i in (1, 2)}
        pairs |= {f"up{i}": "column" for i in (1, 2)} | {f"down{i}": "row" for i in (1, 2)}
        assert {n: s for n, s in plan.styles.items() if s != "whole"} == pairs
    up = split_plan(model("gpt_llama"), 2, tensor=2).rank_stages(1)[1]["up1.weight"]
    assert (up.blocks, up.local_shape) == (2, (192, 64))
    with pytest.raises(UserError, match="attention1 has 2 heads with keys of their own, which 4"):
        split_plan(model("gpt_llama"), 4, tensor=4)
    with pytest.raises(UserError, match="swiglu1 has 21 gates, which 2 ranks"):
        split_plan(model("gpt_llama", sizes={"inner": 21}), 2, tensor=2, layers={"up1": "column"})
