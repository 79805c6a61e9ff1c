"""Recomputed activations equal the saved ones, on every backend, in one process and on ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import split
from conformance.backends import (
    REFEREE,
    ability,
    adapter_of,
    create,
    on_ranks,
    rank_backends,
    tolerance,
)
from conformance.recompute import BATCH, recipe

from dualml.algorithms.precision import Precision
from dualml.backend import ActivationRecomputation, Backend, GradientAccess, MemoryReport
from dualml.common.distance import distance

#: Frameworks whose kernels round depending on memory addresses.
ROUNDS = {"mindspore"}
#: Tolerance of updates: four float32 updates accumulate their differences.
UPDATED = 1e-5


def make_training(backend: Backend, name: str, setting: Any, **options: Any) -> Any:
    training = backend.training(recipe(name, setting, **options))
    ability(training, ActivationRecomputation)
    return training


#: Cases: with padding; with Dropout inside and outside of recomputed parts; inside residual
#: connections, with one value and two; without any of these.
CASES: list[tuple[str, Any]] = [
    ("text_classifier", "selective"),
    ("text_classifier", "full"),
    ("vit", ["qkv", "attention", "proj", "merge1", "branch2", "ln2"]),
    ("vit", ["relu", "down", "merge2"]),
    ("rnn_lm_dropout", ["dropout1", "lstm", "dropout2"]),
    ("rnn_lm_dropout", ["embedding", "lstm"]),
    ("lenet", ["relu1", "pool1", "conv2"]),
    ("gpt", "full"),
    ("gpt_llama", "selective"),
]


#: Cases for a framework that compiles every training anew.
FEWER = [CASES[4]]


def assert_close(
    backend: Backend, one: dict[str, Any], other: dict[str, Any], bound: float
) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        if backend.name in ROUNDS:
            assert distance(value, other[name]) <= bound, name
        else:
            assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize(("name", "setting"), CASES, ids=str)
def test_the_trajectory_is_that_of_what_is_kept(backend: Backend, name: str, setting: Any) -> None:
    """Updates of whole and chunked batches agree, with an evaluation between them."""
    if adapter_of(backend.name).COMPILES and (name, setting) not in FEWER:
        pytest.skip("compiling every case takes minutes; the others have what this one has")
    kept, again = (make_training(backend, name, s) for s in ("none", setting))
    found = []
    for training in (kept, again):
        lazy = [training.step(BATCH[: 16 if step % 2 else 24], step) for step in range(1, 4)]
        trace = training.trace(BATCH, BATCH[:3])
        lazy.append(training.step(BATCH, 4))
        score = training.evaluate(training.recipe.x[:16], training.recipe.y[:16])
        found.append((backend.materialize_losses(lazy), trace, training.weights(), score))
    (a, seen, weights, score), (b, seen_again, weights_again, score_again) = found
    np.testing.assert_allclose(a, b, rtol=UPDATED if backend.name in ROUNDS else 0)
    assert_close(backend, seen.activations, seen_again.activations, UPDATED)
    assert_close(backend, seen.gradients, seen_again.gradients, UPDATED)
    assert_close(backend, weights, weights_again, UPDATED)
    assert score[0] == pytest.approx(score_again[0], rel=UPDATED)


def test_other_masks_than_the_updates_would_be_seen(backend: Backend) -> None:
    again = [make_training(backend, *CASES[4], seed=seed) for seed in (3, 4)]
    a, b = (t.trace(BATCH[:16], BATCH[:2]) for t in again)
    assert distance(a.gradients["lstm.bias_hh_l0"], b.gradients["lstm.bias_hh_l0"]) > 1e-3


def test_it_follows_the_referee(framework_backend: Backend) -> None:
    ours, referee = (
        make_training(b, "text_classifier", "full") for b in (framework_backend, REFEREE)
    )
    for step in range(1, 5):
        a, b = (
            framework_backend.materialize_losses([ours.step(BATCH, step)]),
            referee.step(BATCH, step),
        )
        np.testing.assert_allclose(a, b, rtol=UPDATED)
    for name, w in referee.weights().items():
        assert distance(ours.weights()[name], w) <= UPDATED, name


@pytest.mark.parametrize(
    "precision", [Precision("bf16"), Precision("fp16", "dynamic")], ids=lambda p: p.type
)
def test_in_a_lower_precision(backend: Backend, precision: Precision) -> None:
    if adapter_of(backend.name).COMPILES and precision.type == "bf16":
        pytest.skip("compiling it takes a minute; fp16 has what this one has, and a scale")
    kept, again = (
        make_training(backend, "text_classifier", s, precision=precision) for s in ("none", "full")
    )
    for step in range(1, 4):
        a, b = backend.materialize_losses([t.step(BATCH, step) for t in (kept, again)])
        assert a == pytest.approx(b, rel=1e-3 if backend.name in ROUNDS else 0)
    assert kept.loss_scale == again.loss_scale
    if backend.name not in ROUNDS:
        assert_close(backend, kept.weights(), again.weights(), 0)


def test_less_is_kept_the_more_is_computed_again(backend: Backend) -> None:
    settings = ("none", "selective", "full")
    counts = [
        ability(make_training(backend, "text_classifier", s), MemoryReport)
        .measure_memory(BATCH)
        .activations
        for s in settings
    ]
    if counts[0] is None:
        assert counts == [None] * 3  # inside of a compiled graph
        pytest.skip(f"nobody sees what {backend.name} keeps")
    assert counts[0] > counts[1] > counts[2] > 0


def test_pieces_have_the_same_gradient(backend: Backend) -> None:
    kept, again = (make_training(backend, "text_classifier", s) for s in ("none", "full"))
    found = []
    for training in (kept, again):
        names = list(training.weights())
        pieces = ability(training, GradientAccess).make_buckets([names[:3], names[3:]])
        _, flat = pieces.gradient(BATCH, 0.5)
        found.append(dict(pieces.unflatten(flat)))
    assert_close(backend, *found, UPDATED)


# --- ranks ----------------------------------------------------------------------------------------


@pytest.fixture(params=rank_backends())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ranks_that_share_a_batch(name: str) -> None:
    found = {}
    for setting in ("none", "full"):
        ranks = on_ranks(name, 2, "conformance.recompute:train", {"recompute": setting}, timeout=90)
        if "unsupported" in ranks[0]:
            pytest.skip(ranks[0]["unsupported"])
        assert ranks[0]["losses"] == ranks[1]["losses"]
        found[setting] = ranks[0]
    kept, again = found.values()
    np.testing.assert_allclose(kept["losses"], again["losses"], rtol=UPDATED)
    for key, w in kept["weights"].items():
        assert distance(np.array(w), np.array(again["weights"][key])) <= UPDATED, key
    assert kept["kept"] is None or again["kept"] < kept["kept"] / 2


def case(ranks: int, name: str, recompute: Any, **settings: Any) -> dict[str, Any]:
    return {
        "ranks": ranks,
        "model": name,
        "optimizer": "adam",
        "sizes": [6, 5],
        "loss": "cross_entropy",
        "recompute": recompute,
        "split": settings,
    }


#: Cases on ranks: split by layer, with a block in one stage or in two; tensor parallel, where every
#: part between two communications is recomputed separately; with masks; on a server with two
#: trainers.
SPLITS = {
    "by layer": case(2, "vit", "full", cut=["branch2"], micro_batches=2),
    "a cut block": case(2, "vit", "full", cut=["embed"], micro_batches=3),
    "layers by name": case(2, "deep", ["fc1", "tanh1", "fc2", "tanh2"], cut=["fc4"]),
    "inside": case(2, "vit", "full", tensor=2, micro_batches=2),
    "heads": case(2, "vit", "selective", tensor=2),
    "masks": case(
        2,
        "dropout",
        ["embedding", "dropout1", "lstm", "dropout2"],
        cut=["decoder"],
        micro_batches=3,
    ),
    "masks inside": case(
        2,
        "dropout",
        ["embedding", "dropout1"],
        tensor=2,
        layers={"embedding": "column", "decoder": "column"},
    ),
    "convolutions": case(2, "lenet", ["relu1", "pool1", "conv2", "relu2", "flatten"], cut=["fc1"]),
    "there and back": case(
        2, "deep", ["fc2", "tanh2"], cut=["fc3", "fc4"], place=[0, 1, 0], micro_batches=2
    ),
}
FEW = {"by layer": [3, 3], "masks": [3, 3], "inside": [4, 4], "convolutions": [2, 2]}


def test_a_split_model_is_the_whole_one_and_keeps_less(name: str, tmp_path: Path) -> None:
    cases = split.cases_of(name, SPLITS, FEW)
    kept = [{**one, "recompute": "none"} for one in cases.values()]
    argument = {"cases": [*cases.values(), *kept], "folder": str(tmp_path)}
    told = on_ranks(name, 2, "conformance.split:train", argument, timeout=300)
    for i, (title, one) in enumerate(cases.items()):
        if "unsupported" in told[0][i]:
            pytest.skip(told[0][i]["unsupported"])
        whole = split.expected({**one, "recompute": "none"})
        found = dict(np.load(tmp_path / f"case{i}.rank0.npz"))
        assert found.keys() == whole.keys(), title
        for key, want in whole.items():
            assert close(found[key], want, whole, key, tolerance(create(name))), (title, key)
        held = [
            sum(told[rank][i + shift]["held"] for rank in range(2)) for shift in (0, len(cases))
        ]
        assert 0 < held[0] < held[1], (title, held)


def close(
    found: np.ndarray, want: np.ndarray, whole: dict[str, np.ndarray], key: str, bound: float
) -> bool:
    """Return whether arrays are close, relative to the largest entry or to a tenth of the
    largest of its kind."""
    kind = key.rpartition(" ")[0]
    largest = max(np.abs(v).max() for k, v in whole.items() if k.rpartition(" ")[0] == kind)
    return bool(np.abs(found - want).max() <= bound * max(np.abs(want).max(), 0.1 * largest))
