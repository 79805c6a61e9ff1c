"""The low-precision rules: rounding, the dtype of each layer, the loss scale, the settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command import dualml

from dualml.algorithms.model import ZOO, model
from dualml.algorithms.model.base import DtypePolicy
from dualml.algorithms.model.layers import LAYERS
from dualml.algorithms.precision import (
    ROUNDOFF,
    Precision,
    Scaler,
    cast_parameter_names,
    is_representable,
    layer_precisions,
    low_precision_layers,
    round_to_type,
    ulp,
)
from dualml.algorithms.precision.scaling import INTERVAL, MAX_SKIPPED_UPDATES, START
from dualml.common.errors import TrialError
from dualml.experiment.arm import make_arm
from dualml.experiment.config_diff import flat_config
from dualml.experiment.load import load
from dualml.experiment.store.trajectory import Trajectory
from dualml.parity.envelope import RoundingPerturbation
from dualml.parity.pairs import LowPrecision, compare_trajectories

VALUES = np.random.default_rng(0).normal(size=5000) * 10.0 ** np.arange(-3, 2).repeat(1000)
VALUES = VALUES[np.abs(VALUES) > 2.0**-14]  # normal numbers of float16, too


def nearest(x: float, digits: int) -> float:
    """Return the nearest representable number by definition: a multiple of the unit in the last
    place, ties to even."""
    unit = 2.0 ** (np.floor(np.log2(abs(x))) - digits + 1)
    return float(np.round(x / unit) * unit)


@pytest.mark.parametrize(("precision", "digits"), [("bf16", 8), ("fp16", 11), ("fp32", 24)])
def test_rounding_is_to_the_nearest(precision: str, digits: int) -> None:
    single = VALUES.astype(np.float32).astype(np.float64)
    wanted = [nearest(x, digits) for x in single]
    np.testing.assert_array_equal(round_to_type(single, precision), wanted)
    assert ROUNDOFF[precision] == 2.0**-digits
    far = np.abs(round_to_type(single, precision) - single) / np.abs(single)
    assert 0.9 * ROUNDOFF[precision] < far.max() <= ROUNDOFF[precision] or precision == "fp32"
    assert is_representable(np.array(wanted), precision)
    assert is_representable(single, precision) is (precision == "fp32")


def test_ties_infinities_and_small_numbers() -> None:
    tie = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8])
    assert round_to_type(tie, "bf16").tolist() == [1.0, 1 + 2.0**-6, -1.0]
    assert round_to_type(np.array([65519.0, 65520.0, 1e39]), "fp16").tolist() == [
        65504,
        np.inf,
        np.inf,
    ]
    assert round_to_type(np.array([65520.0, 3.4e38, -1e39]), "bf16").tolist()[1:] == [
        np.inf,
        -np.inf,
    ]
    assert np.isnan(round_to_type(np.array([np.nan]), "bf16")).all()
    assert round_to_type(np.array([2.0**-25, 2.0**-24]), "fp16").tolist() == [0.0, 2.0**-24]


def test_units_are_the_gaps_between_numbers() -> None:
    x = round_to_type(np.array([1.0, 1.5, 3.0, 1e-3, 0.0, 6e-8]), "fp16")
    gaps = np.spacing(x.astype(np.float16)).astype(np.float64)
    np.testing.assert_array_equal(ulp(x, "fp16"), gaps)
    np.testing.assert_array_equal(ulp(x, "fp32"), np.spacing(x.astype(np.float32)))
    assert ulp(np.array([1.0, 2.0]), "bf16").tolist() == [2.0**-7, 2.0**-6]


def test_every_layer_with_weights_says_what_it_does() -> None:
    """Every layer with weights declares its dtype rule; the default (keep the dtype) is for layers
    that only pass values on."""
    ways = {name: layer.dtype_policy for name, layer in LAYERS.items()}
    with_weights = [
        name
        for _, spec in ((n, model(n)) for n in ZOO)
        for name, layer in spec.layers
        if layer.parameters() and layer.dtype_policy is DtypePolicy.SAME
    ]
    assert with_weights == []
    assert {n for n, way in ways.items() if way is DtypePolicy.PRODUCT} == {
        "Linear",
        "Conv2d",
        "Attention",
        "LSTM",
        "GRU",
        "RNN",
        "GroupedAttention",
        "Tied",
    }


def test_what_is_held_in_a_residual_network() -> None:
    layers = model("vit").layers
    held = dict(zip([name for name, _ in layers], layer_precisions(layers), strict=True))
    assert held["qkv"] == (False, True, False)
    assert held["attention"] == (True, True, False)
    assert held["merge1"] == (True, False, False)  # of float32 and the type: float32
    assert (held["ln2"].before, held["ln2"].after) == (False, False)
    assert held["relu"] == (True, True, False)
    assert "head" in low_precision_layers(layers)
    assert "pool" not in low_precision_layers(layers)
    assert set(cast_parameter_names(layers)) >= {"qkv.weight", "head.bias"}
    assert not [
        name for name in cast_parameter_names(layers) if name.startswith(("ln", "position"))
    ]


# --- the scale ------------------------------------------------------------------------------------


def test_the_scale_is_halved_and_grows_again() -> None:
    scaler = Scaler()
    assert [scaler.should_step(finite) for finite in (False, False, True)] == [False, False, True]
    assert (scaler.scale, scaler.skipped, scaler.good, scaler.lost) == (START / 4, 2, 1, 0)
    for _ in range(INTERVAL - 2):
        scaler.should_step(True)
    assert scaler.scale == START / 4
    scaler.should_step(True)
    assert (scaler.scale, scaler.good) == (START / 2, 0)


def test_a_scaler_is_brought_back_whole() -> None:
    one, other = Scaler(), Scaler()
    for finite in (True, False, True, False, False):
        one.should_step(finite)
    other.load({"momentum": {}, **one.state()})
    assert vars(other) == vars(one)
    other.load({})
    assert vars(other) == vars(Scaler())


def test_what_never_fits_ends_with_the_numbers_and_the_remedy() -> None:
    scaler = Scaler()
    for _ in range(MAX_SKIPPED_UPDATES - 1):
        scaler.should_step(False)
    scaler.should_step(True)
    for _ in range(MAX_SKIPPED_UPDATES - 1):
        scaler.should_step(False)
    with pytest.raises(
        TrialError, match=f"{MAX_SKIPPED_UPDATES} updates in a row.*lower the learning rate"
    ):
        scaler.should_step(False)


def test_gradients_of_a_skipped_update_are_shown_as_nothing() -> None:
    scaler = Scaler(4.0)
    fine = {"w": np.float32([8, 2]), "b": np.float32([1])}
    assert {n: g.tolist() for n, g in scaler.unscale_gradients(fine).items()} == {
        "w": [2, 0.5],
        "b": [0.25],
    }
    lost = scaler.unscale_gradients({**fine, "b": np.float32([np.inf])})
    assert not any(g.any() for g in lost.values())


# --- settings -------------------------------------------------------------------------------------

SGD = {"name": "sgd", "lr": 0.1}


def test_the_defaults_of_an_arm() -> None:
    assert make_arm(optimizer=SGD).plan_precision == Precision()
    assert make_arm(optimizer=SGD, precision="bf16").plan_precision == Precision("bf16")
    assert make_arm(optimizer=SGD, precision="fp16").plan_precision == Precision("fp16", "dynamic")
    fixed = make_arm(optimizer=SGD, precision="fp16", loss_scale=128)
    assert fixed.plan_precision == Precision("fp16", 128.0)
    said = make_arm(optimizer=SGD, precision="fp16", loss_scale="dynamic")
    assert flat_config(said) == flat_config(make_arm(optimizer=SGD, precision="fp16"))
    assert flat_config(said) != flat_config(fixed)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_scale": 8}, "loss_scale = 8.* leave it out, or set precision"),
        (
            {"precision": "bf16", "kind": "collectives", "sizes": [4], "strategies": ["ring"]},
            "leave it out of kind = collectives",
        ),
        (
            {
                "precision": "fp16",
                "world_size": 3,
                "split": {"trainers": 2, "arrival": "asynchronous", "micro_batches": 2},
            },
            "would skip some of a batch.*or update_mode = synchronous",
        ),
        (
            {
                "precision": "fp16",
                "world_size": 2,
                "aggregation": {"strategy": "parameter_server_async"},
            },
            "would each skip other updates",
        ),
        (
            {"precision": "fp16", "world_size": 2, "aggregation": {"of": "parameters"}},
            "would each skip other updates",
        ),
        (
            {"precision": "fp16", "world_size": 2, "aggregation": {"compress": "fp16"}},
            "compress = fp16",
        ),
        ({"precision": "fp8"}, "fp32"),
        ({"precision": "fp16", "loss_scale": 0}, "greater than 0"),
        ({"precision": "fp16", "loss_scale": "off"}, "dynamic"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_arm(optimizer=SGD, **settings)


def test_bf16_without_a_scale_goes_with_parameters_that_are_averaged() -> None:
    arm = make_arm(optimizer=SGD, precision="bf16", world_size=2, aggregation={"of": "parameters"})
    assert arm.plan_precision.make_scaler() is None


def test_it_is_described_only_where_it_was_said(tmp_path: Path) -> None:
    text = (
        'name = "p"\nmodel = "softmax"\ntitle = { en = "P" }\n[data]\nname = "digits"\n'
        '[arms.a]\noptimizer = { name = "sgd", lr = 0.1 }\n[arms.b]\nprecision = "fp16"\n'
        'optimizer = { name = "sgd", lr = 0.1 }\n'
    )
    (tmp_path / "p.toml").write_text(text)
    arms = load(str(tmp_path / "p.toml")).describe()["arms"]
    assert not {"precision", "loss_scale"} & set(arms["a"])
    assert arms["b"]["precision"] == "fp16"
    assert "loss_scale" not in arms["b"]


def test_show_says_what_an_arm_computes_in(tmp_path: Path) -> None:
    text = (
        'name = "p"\nmodel = "softmax"\ntitle = { en = "P" }\n[data]\nname = "digits"\n'
        '[arms.a]\noptimizer = { name = "sgd", lr = 0.1 }\n[arms.b]\nprecision = "fp16"\n'
        'optimizer = { name = "sgd", lr = 0.1 }\n'
    )
    (tmp_path / "p.toml").write_text(text)
    shown = dualml("show", tmp_path / "p.toml").stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["arm", "precision", "loss_scale"] in rows
    assert ["a", "fp32"] in rows
    assert ["b", "fp16", "dynamic"] in rows


# --- parity ---------------------------------------------------------------------------------------


def test_a_draw_lends_half_a_unit_to_what_is_cast() -> None:
    weights = {"fc.weight": np.float32(VALUES), "ln.weight": np.float32(VALUES)}
    noise = RoundingPerturbation(0, 0, "bf16", ["fc.weight"])
    moved = noise.apply(weights, 1)
    far = np.abs(moved["fc.weight"] - weights["fc.weight"]) / ulp(VALUES, "bf16")
    np.testing.assert_allclose(far, 0.5, atol=1e-4)
    single = ulp(VALUES, "fp32")
    assert (np.abs(moved["ln.weight"] - weights["ln.weight"]) <= 1.01 * single).all()
    back = noise.revert({name: w + np.float32(1) for name, w in moved.items()})
    assert np.abs(back["fc.weight"] - 1 - weights["fc.weight"]).max() < 1e-5
    again = noise.apply(weights, 2)["fc.weight"]
    assert not np.array_equal(again, moved["fc.weight"])


def trajectory(backend: str, output: np.ndarray) -> Trajectory:
    tensors = {"forward/00000001/fc": output}
    weights = {"fc.weight": np.ones(2)}
    return Trajectory(backend, np.ones(1), tensors, {1: "a"}, None, 1.0, 0.5, weights)


def test_outputs_that_are_no_numbers_of_the_type_are_different() -> None:
    x = round_to_type(VALUES, "bf16")
    lower = LowPrecision("bf16", ["fc"])
    same = compare_trajectories(trajectory("torch", x), trajectory("numpy", x), 10.0, [], lower)
    assert same.verdict == "equal"
    cast = VALUES.astype(np.float32)
    judged = compare_trajectories(
        trajectory("torch", cast), trajectory("numpy", x), 10.0, [], lower
    )
    assert judged.verdict == "different"
    assert judged.first_divergence["tensor"] == "fc of torch"
    elsewhere = LowPrecision("bf16", [])
    assert (
        compare_trajectories(
            trajectory("torch", cast), trajectory("numpy", x), 10.0, [], elsewhere
        ).verdict
        == "equal"
    )  # a rounding of the type is no difference
    assert (
        compare_trajectories(trajectory("torch", cast), trajectory("numpy", x), 10.0, []).verdict
        == "different"
    )
