"""A split model in low precision computes what the unsplit model computes in that precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import split
from conformance.backends import REFEREE, ability, on_ranks, rank_backends
from conformance.test_precision import GRADIENT, OUTPUT
from conformance.test_split import RNN, case

from dualml.algorithms.model.layers import Linear, Tanh
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import SGD
from dualml.algorithms.precision import ROUNDOFF, Precision, is_representable, low_precision_layers
from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES, START
from dualml.backend import Backend, MixedPrecisionStage, PipelineStages, Segment, TrainingSpec
from dualml.backend.reference.communicator import run_threads
from dualml.backend.reference.split import NumpyStage
from dualml.common.distance import distance
from dualml.common.errors import TrialError, Unsupported
from dualml.parallel.split.executor import Executor

# The first test of a group waits for all that its ranks have to find out.
pytestmark = pytest.mark.timeout(900)

BF16, FP16 = ("bf16",), ("fp16", 256.0)
#: Inputs a hundred times as large: the first gradients of the scaled loss overflow float16.
LARGE = {"precision": ("fp16", "dynamic"), "enlarged": 100.0}
FALLING = {"kind": "cosine", "warmup": 3}


def lower(precision: tuple[Any, ...], *words: Any, **settings: Any) -> dict[str, Any]:
    return {**case(*words, **{"sizes": [8, 7], **settings}), "precision": precision}


CASES = {
    "by layer bf16": lower(BF16, 2, "vit", cut=["branch2"], micro_batches=3),
    "by layer fp16": lower(FP16, 2, "lenet", "adam", cut=["relu2"], micro_batches=2),
    "there and back": lower(BF16, 2, "deep", place=[0, 1, 0], micro_batches=2),
    "inside bf16": lower(BF16, 2, "vit", tensor=2),
    "inside fp16": lower(FP16, 2, "vit", "adam", tensor=2, micro_batches=2),
    "lenet inside": lower(BF16, 2, "lenet", tensor=2),
    "gathered": lower(BF16, 2, "vit", tensor=2, layers={"qkv": "column", "proj": "whole"}),
    "sequence bf16": lower(
        BF16, 2, "longer gpt", tensor=2, sequence=True, regather=True, sizes=[6, 5]
    ),
    "data": lower(FP16, 2, "deep", data=2),
    "masks by layer": lower(BF16, 2, "dropout", cut=["dropout2"], micro_batches=2, sizes=[6, 5]),
    "masks inside": lower(FP16, 2, "dropout", tensor=2, layers=RNN, sizes=[6, 5]),
    "trainers": lower(BF16, 3, "deep", trainers=2, place=[0, 1, 0], micro_batches=2),
    "tensor pipeline": lower(BF16, 4, "vit", tensor=2, cut=["branch2"], micro_batches=2),
    "data pipeline": lower(FP16, 4, "lenet", data=2, cut=["flatten"]),
    "gpt by layer": lower(BF16, 2, "gpt", cut=["mlp_branch1"], micro_batches=2, sizes=[6, 5]),
    "llama inside": lower(BF16, 2, "llama", tensor=2, sizes=[6, 5]),
    "zero data pipeline": {**lower(FP16, 4, "lenet", "adam", data=2, cut=["flatten"]), "zero": {}},
}
#: Overflowing cases, each compared with the unsplit model that overflows in the same way.
OVERFLOWING = {
    "once by layer": {**case(2, "lenet", "adam", sizes=[8], micro_batches=2), **LARGE},
    "by layer": {**case(2, "lenet", "adam", sizes=[8] * 9), **LARGE, "rates": FALLING},
    "inside": {**case(2, "lenet", "adam", sizes=[8] * 9, tensor=2), **LARGE},
    "data": {**case(2, "lenet", "adam", sizes=[8] * 9, data=2), **LARGE},
    "zero data": {**case(2, "lenet", "adam", sizes=[8] * 9, data=2), **LARGE, "zero": {}},
}
#: Cases for a framework that compiles every stage of every case.
FEW = {
    "by layer bf16": [3, 3],
    "there and back": [4],
    "inside fp16": [4, 4],
    "lenet inside": [4],
    "masks by layer": [4],
    "trainers": [4],
    "llama inside": [4],
}
#: Cases of these that combine what others have one by one: they run with ``--slow``.
LATER = {"lenet inside", "llama inside"}


def cases_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the cases that a backend runs."""
    return split.cases_of(name, CASES, FEW, LATER)


Found = Callable[[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def group_results(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Return (backend, case) → results of each rank; all cases of one size run on one group."""

    @cache
    def group(name: str, ranks: int) -> dict[str, list[dict[str, Any]]]:
        every = {**cases_of(name), **{f"overflow {t}": c for t, c in OVERFLOWING.items()}}
        chosen = {title: c for title, c in every.items() if c["ranks"] == ranks}
        folder = tmp_path_factory.mktemp(f"{name}{ranks}")
        argument = {"cases": list(chosen.values()), "folder": str(folder)}
        train, limit = "conformance.split:train", split.LIMIT_S
        told = on_ranks(name, ranks, train, argument, timeout=120, limit=limit)
        kept: dict[str, list[dict[str, Any]]] = {}
        for i, title in enumerate(chosen):
            each = [told[rank][i] for rank in range(ranks)]
            paths = [folder / f"case{i}.rank{rank}.npz" for rank in range(ranks)]
            kept[title] = [
                one if "unsupported" in one else dict(np.load(path))
                for one, path in zip(each, paths, strict=True)
            ]
        return kept

    def case_results(name: str, title: str) -> list[dict[str, Any]]:
        known = {**CASES, **{f"overflow {t}": c for t, c in OVERFLOWING.items()}}
        ranks = group(name, known[title]["ranks"])[title]
        if "unsupported" in ranks[0]:
            pytest.skip(ranks[0]["unsupported"])
        return ranks

    return case_results


SPLITTING = rank_backends()
EVERY = [(name, title) for name in SPLITTING for title in cases_of(name)]


def assert_near(ours: split.Arrays, whole: split.Arrays, asked: dict[str, Any]) -> None:
    """Assert that outputs are values of the low-precision type within a few roundings, and
    gradients and losses too. Weights are float32 and change little."""
    precision = asked["precision"][0]
    unit, layers = ROUNDOFF[precision], low_precision_layers(split.spec_of(asked).layers)
    assert layers
    assert ours.keys() == whole.keys()
    for name, want in whole.items():
        kind, _, tensor = name.partition(" ")
        if kind == "activation":
            assert tensor not in layers or is_representable(ours[name], precision), name
            assert distance(ours[name], want) <= OUTPUT * unit, name
        elif kind == "gradient":
            assert distance(ours[name], want) <= GRADIENT * unit, name
        elif kind in ("losses", "evaluation"):
            np.testing.assert_allclose(ours[name], want, rtol=OUTPUT * unit, err_msg=name)
        elif kind == "weight":
            assert distance(ours[name], want) <= OUTPUT * unit, name


def assert_alike(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks[1:]:
        assert rank.keys() == ranks[0].keys()
        for key, value in ranks[0].items():
            np.testing.assert_array_equal(rank[key], value, err_msg=key)


@pytest.mark.parametrize(("name", "title"), EVERY)
def test_a_split_model_is_the_whole_one(group_results: Found, name: str, title: str) -> None:
    asked, ranks = cases_of(name)[title], group_results(name, title)
    assert_near(ranks[0], split.expected(asked), asked)
    assert_alike(ranks)


@pytest.mark.parametrize("name", SPLITTING)
@pytest.mark.parametrize("title", OVERFLOWING)
def test_all_ranks_skip_the_same_updates(group_results: Found, name: str, title: str) -> None:
    """All ranks skip the same updates, also when only one rank has non-finite gradients."""
    asked, ranks = OVERFLOWING[title], group_results(name, f"overflow {title}")
    assert_alike(ranks)
    scale, skipped = (float(ranks[0][f"state loss_scale {s}"]) for s in ("scale", "skipped"))
    assert scale == START / 2**skipped
    start = split.recipe_of(asked).weights
    moved = [n for n, w in start.items() if not np.array_equal(ranks[0][f"weight {n}"], w)]
    if len(asked["sizes"]) == 1:
        assert (skipped, moved) == (1, [])
        return
    assert 1 <= skipped < len(asked["sizes"]) - 1
    assert moved
    if title.endswith("data"):
        return  # the sum of a batch may overflow where those of its halves do not
    whole = split.expected(asked)
    assert skipped == float(whole["state loss_scale skipped"])
    for name_, w in start.items():
        far = np.linalg.norm(whole[f"weight {name_}"] - w)
        away = np.linalg.norm(ranks[0][f"weight {name_}"] - whole[f"weight {name_}"])
        assert away <= 0.05 * far, name_


def test_what_always_overflows_ends_on_all_ranks(tmp_path: Path) -> None:
    asked = {
        **OVERFLOWING["once by layer"],
        "precision": ("fp16", 1e9),
        "sizes": [8] * MAX_SKIPPED_UPDATES,
    }
    argument = {"cases": [asked], "folder": str(tmp_path)}
    with pytest.raises(
        TrialError, match=f"{MAX_SKIPPED_UPDATES} updates in a row.*loss_scale lower"
    ):
        run_threads(2, lambda comm: split.train(comm, argument), 10)


# --- one stage ------------------------------------------------------------------------------------


def last_stage(backend: Backend, precision: str) -> Any:
    """Return the last stage of a model for 4 samples; its input has the low-precision type."""
    layers = (("tanh", Tanh()), ("fc", Linear(6, 5)))
    spec = ModelSpec("end", (6,), layers)
    recipe = TrainingSpec(
        spec=spec,
        weights={},
        rule=SGD(lr=0.1),
        x=np.zeros((4, 6), np.float32),
        y=np.arange(4),
        updates=1,
        precision=Precision(precision),
    )
    staging = ability(backend, PipelineStages)
    stage = staging.stage([Segment(layers, 1, {}, (True,))], recipe, first=False, last=True)
    if not isinstance(stage, MixedPrecisionStage):
        pytest.skip(f"this backend cannot {MixedPrecisionStage.description}")
    draw = np.random.default_rng(0)
    weights = {"fc.weight": draw.normal(size=(5, 6)), "fc.bias": draw.normal(size=5)}
    stage.load({n: w.astype(backend.dtype) for n, w in weights.items()}, {}, 0)
    stage.zero_grad()
    return stage


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_that_go_back_are_of_the_type(backend: Backend, precision: str) -> None:
    """Values are sent unrounded: truncated bits would round to zero."""
    stage = last_stage(backend, precision)
    x = stage.inputs(np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32))
    stage.loss(0, (stage.downcast(x),), stage.labels(np.arange(4)))
    _, (gradient,) = stage.loss_backward(0, 1.0)
    host = _host(stage.upcast(gradient))
    assert host.any()
    assert is_representable(host, precision)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_what_travels_is_what_was_sent(backend: Backend, precision: str) -> None:
    """Messages preserve every kind of number, including infinities and NaN."""
    stage = last_stage(backend, precision)
    numbers = np.float32([[0, -0.0, 1.2345, -3e4, 1e-7, np.inf, -np.inf, np.nan]])
    x = stage.downcast(stage.inputs(numbers))
    sent = stage.to_wire(x)
    buffer = stage.recv_buffer(numbers.shape)
    assert (buffer.dtype, buffer.shape) == (sent.dtype, sent.shape)
    came = stage.upcast(stage.from_wire(sent))
    for a, b in zip(_host(came).ravel(), _host(stage.upcast(x)).ravel(), strict=True):
        assert (np.signbit(a), np.isnan(a)) == (np.signbit(b), np.isnan(b))
        assert np.isnan(a) or a == b


def _host(x: Any) -> np.ndarray:
    return np.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x)


# --- planted faults -------------------------------------------------------------------------------


def unrounded_sums(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: sums are not rounded to the low-precision type."""
    patch.setattr(NumpyStage, "downcast", lambda self, x: x)


def lost_sums(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: sums over a group are skipped."""
    patch.setattr(Executor, "all_reduce_sum", lambda self, group, x: x)


def forgotten_scale(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: gradients are not unscaled."""
    right = NumpyStage.update_scaled
    patch.setattr(
        NumpyStage, "update_scaled", lambda self, step, made, _: right(self, step, made, 1.0)
    )


def bias_of_float32(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: a row-parallel layer adds its bias in float32, so its output is float32."""
    from dualml.algorithms.model.base import DtypePolicy
    from dualml.algorithms.model.layers import RowBias

    patch.setattr(RowBias, "dtype_policy", DtypePolicy.PROMOTE)


@pytest.mark.parametrize(
    ("title", "plant"),
    [
        ("inside bf16", lost_sums),
        ("inside bf16", unrounded_sums),
        ("inside bf16", bias_of_float32),
        ("data", forgotten_scale),
    ],
)
def test_planted_faults_are_seen(
    title: str, plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    asked = CASES[title]
    argument = {"cases": [asked], "folder": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        run_threads(asked["ranks"], lambda comm: split.train(comm, argument), 10)
    with pytest.raises(AssertionError):
        assert_near(dict(np.load(tmp_path / "case0.rank0.npz")), split.expected(asked), asked)


def test_a_rank_that_decides_alone_is_seen(tmp_path: Path) -> None:
    """A rank that decides alone is noticed: if only the last stage overflows, the first must be
    told."""
    asked = OVERFLOWING["by layer"]
    argument = {"cases": [asked], "folder": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Executor,
            "all_finite",
            lambda self: self.mixed.has_finite_gradients() if self.rank else True,
        )
        run_threads(2, lambda comm: split.train(comm, argument), 10)
    paths = [tmp_path / f"case0.rank{rank}.npz" for rank in range(2)]
    with pytest.raises(AssertionError):
        assert_alike([dict(np.load(path)) for path in paths])


def test_stages_without_a_lower_precision_say_so() -> None:
    class Plain:
        """A stage of a backend with float32 only."""

    class Backendlike(type(REFEREE)):  # type: ignore[misc]
        def stage(self, *_: Any, **__: Any) -> Any:
            return Plain()

    from dualml.parallel.split.plan import split_plan
    from dualml.parallel.split.training import make_stage

    asked = CASES["by layer bf16"]
    plan = split_plan(split.spec_of(asked), 2)
    with pytest.raises(Unsupported, match="lower precision"):
        make_stage(Backendlike(), plan, 0, split.recipe_of(asked))
