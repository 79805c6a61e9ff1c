"""The recomputed layers, the saved activations, and that no result changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance.recompute import SIZES, spec_of

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.model.layers import Branch, Dropout, LayerNorm, Linear, Merge, Tanh
from dualml.algorithms.model.recompute import (
    count_stack_inputs,
    layer_spans,
    recompute_groups,
    residual_blocks,
    validate_recompute,
)
from dualml.algorithms.model.saved_activations import saved_bytes_per_sample
from dualml.algorithms.optim import SGD
from dualml.algorithms.precision import Precision
from dualml.backend import TrainingSpec
from dualml.backend.reference.model import Model, RecomputedSpan, TapeEntry
from dualml.backend.reference.saved_activations import SAVED_BY_LAYER, WIDTH
from dualml.backend.reference.training import NumpyTraining
from dualml.common.errors import UserError
from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import baseline_of, inexactness_reason

TEXT = model("text_classifier", words=50, length=7)
#: A residual connection inside another, with Dropout outside, between and inside of them.
NESTED = ModelSpec(
    "nested",
    (4,),
    (
        ("in", Linear(4, 6)),
        ("drop0", Dropout(0.5)),
        ("outer", Branch()),
        ("norm", LayerNorm(6)),
        ("drop1", Dropout(0.25)),
        ("inner", Branch()),
        ("fc", Linear(6, 6)),
        ("tanh", Tanh()),
        ("drop2", Dropout(0.5)),
        ("close", Merge()),
        ("end", Merge()),
        ("out", Linear(6, 3)),
    ),
)
NAMES = [name for name, _ in NESTED.layers]


def samples(spec: ModelSpec, n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    if spec.takes_tokens:
        x = draw.integers(1, 50, (n, *spec.input_shape)).astype(np.int32)
        x[: n // 2, 4:] = 0
        y = draw.integers(0, 6, n if spec.needs_padding_mask else x.shape)
        return x, y
    x = draw.normal(size=(n, *spec.input_shape)).astype(np.float32)
    return x, draw.integers(0, 3, n)


def training(spec: ModelSpec, setting: Any, **options: Any) -> NumpyTraining:
    x, y = samples(spec)
    given = {"rule": SGD(lr=0.1, momentum=0.9), "updates": 5, "seed": 3, **options}
    weights = initial_weights(spec, 0)
    groups = recompute_groups(spec, setting)
    return NumpyTraining(
        TrainingSpec(spec=spec, weights=weights, x=x, y=y, recompute=groups, **given)
    )


# --- which layers ---------------------------------------------------------------------------------


def test_selective_is_the_inside_of_attention() -> None:
    assert recompute_groups(TEXT, "selective") == (("attention1",), ("attention2",))


def test_full_is_every_block_that_ends_in_a_residual_connection() -> None:
    full = recompute_groups(TEXT, "full")
    assert [(names[0], names[-1]) for names in full] == [
        ("embedding", "attention_merge1"),
        ("mlp_branch1", "mlp_merge1"),
        ("attention_branch2", "attention_merge2"),
        ("mlp_branch2", "mlp_merge2"),
    ]
    assert residual_blocks(TEXT) == (*full, ("norm", "pool", "head"))


def test_layers_that_stand_together_are_one_group() -> None:
    assert recompute_groups(NESTED, ["tanh", "out", "fc"]) == (("fc", "tanh"), ("out",))
    assert recompute_groups(NESTED, "none") == ()


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("lenet", "selective", "selective computes attention again, and lenet has none"),
        ("mlp", "full", "mlp has none: all of it would be there at once again"),
        (
            "mlp",
            "full",
            r'name layers of it, as in recompute = \["fc3"\]: flatten, fc1, tanh1, fc2, …',
        ),
        ("vit", ["attenton"], "vit has no layer 'attenton'; did you mean 'attention'"),
        ("vit", [], r"recompute = \[\] names no layer"),
        ("vit", ["ln1", "ln1"], "names 'ln1' twice"),
        ("vit", "ful", "recompute is none, selective, full or a list .*'ful'; did you mean 'full'"),
    ],
)
def test_what_no_model_or_not_this_one_has(name: str, setting: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        recompute_groups(model(name), setting)


def test_running_statistics_exclude_recomputation() -> None:
    spec = model("resnet18_cifar", sizes={"width": 4})
    weights = initial_weights(spec, 0)
    Model(spec, weights)
    with pytest.raises(UserError, match="has running statistics"):
        Model(spec, weights, recompute=(("fc",),))


def test_a_setting_is_checked_without_a_model() -> None:
    validate_recompute(["whatever"])
    with pytest.raises(UserError, match="'some'"):
        validate_recompute("some")


def test_stretches_cover_the_layers_and_deal_the_masks() -> None:
    found = layer_spans(NESTED.layers, (("norm", "drop1"), ("fc", "tanh", "drop2", "close")))
    told = [
        (NAMES[s.layers], s.recomputed, s.input_count, (s.masks.start, s.masks.stop)) for s in found
    ]
    assert told == [
        (["in", "drop0", "outer"], False, 1, (0, 1)),
        (["norm", "drop1"], True, 1, (1, 2)),
        (["inner"], False, 1, (2, 2)),
        (["fc", "tanh", "drop2", "close"], True, 2, (2, 3)),
        (["end", "out"], False, 2, (3, 3)),
    ]
    assert layer_spans(NESTED.layers[:3], (("fc",),)) == ()


def test_a_part_computes_again_what_it_has_of_a_group() -> None:
    (own,) = [
        s for s in layer_spans(NESTED.layers[3:7], (("drop0", "outer", "norm"),)) if s.recomputed
    ]
    assert own.layers == slice(0, 1)


def test_values_that_go_into_layers() -> None:
    assert count_stack_inputs(NESTED.layers) == 1
    assert count_stack_inputs(NESTED.layers[9:]) == 3
    assert (
        count_stack_inputs([("a", Merge()), ("b", Branch()), ("c", Merge()), ("d", Merge())]) == 3
    )


# --- no number changes ----------------------------------------------------------------------------

SETTINGS: list[Any] = [
    ["norm"],
    ["in"],
    ["out"],
    ["fc", "tanh"],
    ["close", "end"],
    ["drop0", "outer", "norm"],
    ["tanh", "drop2", "close"],
    ["inner", "fc", "close", "drop0"],
    NAMES,
    "full",
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_bit_is_the_same(setting: Any, precision: str) -> None:
    one, other = (
        training(NESTED, s, precision=Precision(precision), chunk=10) for s in ("none", setting)
    )
    batch = np.arange(24)
    assert one.step(batch, 1) == other.step(batch, 1)
    a, b = (t.trace(batch, batch[:4]) for t in (one, other))
    assert (a.data, a.loss) == (b.data, b.loss)
    assert list(a.activations) == list(b.activations)
    for mine, theirs in (
        (a.activations, b.activations),
        (a.gradients, b.gradients),
        (one.weights(), other.weights()),
    ):
        for name, value in mine.items():
            assert np.array_equal(value, theirs[name]), name


@pytest.mark.parametrize("setting", ["selective", "full", ["qkv1", "attention1"], ["pool"]])
def test_padding_is_passed_over_again(setting: Any) -> None:
    one, other = (training(TEXT, s) for s in ("none", setting))
    for step in (1, 2, 3):
        assert one.step(np.arange(24), step) == other.step(np.arange(24), step)
    assert all(np.array_equal(w, other.weights()[n]) for n, w in one.weights().items())


@pytest.mark.parametrize("setting", ["full", ["embedding"], ["norm", "head"]])
def test_a_tied_table_has_the_gradients_of_both_layers(setting: Any) -> None:
    one, other = (training(spec_of("gpt"), s, chunk=10) for s in ("none", setting))
    for step in (1, 2):
        assert one.step(np.arange(24), step) == other.step(np.arange(24), step)
    assert all(np.array_equal(w, other.weights()[n]) for n, w in one.weights().items())


def test_other_masks_would_be_seen() -> None:
    one, other = training(NESTED, "none"), training(NESTED, "full", seed=4)
    assert one.step(np.arange(24), 1) != other.step(np.arange(24), 1)


# --- what is kept ---------------------------------------------------------------------------------


def test_the_tape_holds_what_goes_in_and_nothing_of_the_inside() -> None:
    spec = model("mlp")
    again = Model(
        spec, initial_weights(spec, 0), recompute=recompute_groups(spec, ["fc2", "tanh2"])
    )
    x = np.zeros((3, 1, 28, 28), np.float32)
    _, tape = again.forward(x, (), again.spans)
    kinds = [(type(entry), getattr(entry, "name", "")) for entry in tape]
    assert kinds == [
        (TapeEntry, "flatten"),
        (TapeEntry, "fc1"),
        (TapeEntry, "tanh1"),
        (RecomputedSpan, ""),
        (TapeEntry, "fc3"),
    ]
    inside = tape[3]
    assert isinstance(inside, RecomputedSpan)
    assert [v.shape for v in inside.values] == [(3, 256)]
    assert [entry.name for entry in inside.tape(again.weights)] == ["fc2", "tanh2"]


ZOO: list[tuple[str, list[Any]]] = [
    ("mlp", ["none", ["fc2", "tanh2"], ["tanh1"], ["flatten", "fc1"]]),
    ("lenet", ["none", ["relu1", "pool1"], ["conv2", "relu2", "pool2", "flatten"]]),
    ("vit", ["none", "selective", "full", ["rows", "embed"], ["relu", "down", "merge2", "ln3"]]),
    ("text_classifier", ["none", "selective", "full", ["pool"], ["embedding"]]),
    ("rnn_lm_dropout", ["none", ["lstm"], ["dropout1", "lstm", "dropout2"], ["decoder"]]),
    ("nested", ["none", *SETTINGS]),
    *((name, ["none", "selective", "full", ["up1"]]) for name in SIZES),
]


@pytest.mark.parametrize(
    ("name", "setting"), [(name, s) for name, settings in ZOO for s in settings], ids=str
)
def test_the_referee_keeps_the_closed_form_to_the_byte(name: str, setting: Any) -> None:
    spec = NESTED if name == "nested" else spec_of(name)
    counted = training(spec, setting, chunk=10).measure_memory(np.arange(24)).activations
    each = saved_bytes_per_sample(spec, SAVED_BY_LAYER, WIDTH, recompute_groups(spec, setting))
    assert each is not None
    assert counted == 10 * each


def test_less_is_kept_by_what_was_inside() -> None:
    """Selective recomputation saves fewer activations: for the text classifier it omits the weights
    of two attentions, four heads of 7 × 7 each."""
    all_kept, selective = (
        saved_bytes_per_sample(TEXT, SAVED_BY_LAYER, WIDTH, recompute_groups(TEXT, s))
        for s in ("none", "selective")
    )
    assert all_kept is not None
    assert selective is not None
    assert all_kept - selective == 2 * 8 * 4 * 7 * 7 - 7  # and where a sample has tokens, once


def test_of_an_unknown_layer_nothing_is_known() -> None:
    spec = model("rnn_lm", words=9, length=4)
    table = {kind: keeps for kind, keeps in SAVED_BY_LAYER.items() if kind.__name__ != "LSTM"}
    assert saved_bytes_per_sample(spec, table, WIDTH) is None
    assert saved_bytes_per_sample(spec, table, WIDTH, (("lstm",),)) is not None


# --- which arm it is held against -----------------------------------------------------------------

PLAIN = {"optimizer": {"name": "sgd", "lr": 0.1}, "model": "vit"}
ARMS: dict[str, dict[str, Any]] = {
    "full": {**PLAIN, "recompute": "full"},
    "kept": PLAIN,
    "bf16": {**PLAIN, "precision": "bf16"},
    "bf16-full": {**PLAIN, "precision": "bf16", "recompute": "full"},
    "ranks": {**PLAIN, "world_size": 2},
    "ranks-full": {**PLAIN, "world_size": 2, "recompute": "full"},
    "other": {**PLAIN, "batch_size": 32, "recompute": "full"},
    "other-ranks": {**PLAIN, "batch_size": 32, "world_size": 2},
}


def arms(*names: str) -> dict[str, Arm]:
    return {name: make_arm(ARMS[name]) for name in names or ARMS}


def test_it_is_held_against_the_arm_that_keeps_all() -> None:
    contrast = ConfigDiff(arms())
    found = {name: baseline_of(name, contrast) for name in ARMS}
    assert found == {
        "full": "kept",
        "kept": None,
        "bf16": "kept",
        "bf16-full": "bf16",
        "ranks": "kept",
        "ranks-full": "kept",
        "other": None,
        "other-ranks": "other",
    }
    assert baseline_of("bf16-full", ConfigDiff(arms("bf16-full", "kept"))) is None


def test_only_rounding_may_tell_them_apart() -> None:
    why = {name: inexactness_reason(arm, 100) for name, arm in arms().items()}
    assert {name for name, reason in why.items() if reason} == {"bf16"}
