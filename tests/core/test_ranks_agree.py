"""The checks between the ranks of a trial: weights within rounding, bytes by the closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_methods
import numpy as np
import pytest

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model import model
from dualml.backend.reference.communicator import run_threads
from dualml.common.words import Messages
from dualml.experiment.store.agreement import DIVERGED_REASON
from dualml.experiment.store.load import load
from dualml.experiment.store.manifest import TrialRecord, read_run
from dualml.experiment.store.trial_comparison import TrialComparison
from dualml.parallel.aggregation import STRATEGIES
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.volume import aggregation_volume
from dualml.parallel.copies import WeightCopies
from dualml.parallel.split.plan import split_plan
from dualml.parallel.split.traffic import collectives, links
from dualml.parallel.split.traffic import total_sent_bytes as moved_by
from dualml.parity.serial import compare_serial
from dualml.parity.statistics import resolve_by_seeds
from dualml.report.baseline_diff import exclusion_reason
from dualml.report.methods import MethodResult
from dualml.runner.worker.agreement import MIN_SENT_SHARE, compare_copies, sketch_array

RANDOM = np.random.default_rng(3)
WEIGHT, BIAS = RANDOM.normal(size=(50, 20)).astype(np.float32), np.full(20, 1e-4, np.float32)


def on_two(change: Callable[[dict[str, Any]], Any], step: int = 1, ranks: Any = None) -> Any:
    """Return the results of two ranks, of which the second has changed its copy."""

    def work(comm: Communicator) -> Any:
        arrays = {"weight": WEIGHT.copy(), "bias": BIAS.copy()}
        if comm.rank:
            change(arrays)
        return compare_copies(comm, WeightCopies(arrays, ranks), step)

    first, second = run_threads(2, work)
    assert first == second  # all ranks decide alike
    return first


def test_equal_copies_have_one_digest_and_no_distance() -> None:
    sha256, (apart, limit), far = on_two(lambda arrays: None)
    assert (apart, far) == (0.0, [])
    assert len(sha256) == 64
    assert limit < 1e-5


def test_rounding_is_allowed_and_grows_with_the_updates() -> None:
    def one_ulp(arrays: dict[str, Any]) -> None:
        arrays["weight"] = np.nextafter(arrays["weight"], np.float32(9))

    _, (apart, limit), far = on_two(one_ulp)
    assert 0 < apart < limit
    assert far == []
    assert on_two(one_ulp, step=100)[1][1] == pytest.approx(10 * limit)


def test_a_small_tensor_counts_by_its_own_size() -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["bias"][3] += 1e-6

    _, (apart, _), far = on_two(change)
    assert [name for name, _ in far] == ["bias"]
    assert apart == pytest.approx(1e-6 / np.linalg.norm(BIAS), rel=1e-3)
    assert apart < 3e-3 < np.linalg.norm(BIAS) / np.linalg.norm(WEIGHT) + 3e-3


def test_a_number_that_is_none_is_far() -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["bias"][0] = np.nan

    assert [name for name, _ in on_two(change)[2]] == ["bias"]


def test_ranks_that_promise_nothing_are_not_compared() -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["weight"] += 1

    assert on_two(change, ranks=(0,))[2] == []
    assert on_two(change)[0] == on_two(change, ranks=(0,))[0]  # the digest is of all


@pytest.mark.parametrize("length", [0, 1, 7, 4096, 100_000])
def test_sketches_are_as_far_apart_as_their_arrays(length: int) -> None:
    a = RANDOM.normal(size=length)
    b = a + 1e-3 * RANDOM.normal(size=length)
    first, second = sketch_array(a), sketch_array(b)
    assert first[0] == pytest.approx(np.linalg.norm(a))
    found, true = np.linalg.norm(first[1:] - second[1:]), np.linalg.norm(a - b)
    assert found == pytest.approx(true, rel=0.15 if length > 4096 else 1e-6)


SHAPES = model("lenet").parameters()
ELEMENTS = sum(map(math.prod, SHAPES.values()))


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("name", [n for n, s in STRATEGIES.items() if s.exact])
def test_a_sum_is_never_had_for_less_than_a_ring(name: str, n: int) -> None:
    total = aggregation_volume(Aggregation(strategy=name), SHAPES, n, 4)
    assert total >= 4 * 2 * (n - 1) * ELEMENTS * (1 - 1e-3)
    own = STRATEGIES[name]()
    sent = sum(own.schedule(n).sent_volume(rank, ELEMENTS)[1] for rank in range(n))
    assert total == 4 * sent


def test_compressed_gradients_and_a_server_have_closed_forms_of_their_own() -> None:
    half = aggregation_volume(Aggregation(compress="fp16"), SHAPES, 2, 4)
    assert half == aggregation_volume(Aggregation(), SHAPES, 2, 4) / 2
    few = aggregation_volume(Aggregation(compress="topk", fraction=0.01), SHAPES, 4, 4)
    assert few == 4 * 3 * math.ceil(0.01 * ELEMENTS) * (4 + 4)
    served = aggregation_volume(Aggregation(strategy="parameter_server_async"), SHAPES, 4, 4)
    assert served == 2 * 3 * ELEMENTS * 4


def test_a_split_moves_its_messages_and_a_ring_for_each_collective() -> None:
    plan = split_plan(model("deep_mlp"), 4, data=2, cut=["fc4"], micro_batches=4)
    messages = sum(link.nbytes for link in links(plan, 64))
    added = collectives(plan, 64)
    assert {c.kind for c in added} == {"all_reduce gradients"}
    assert moved_by(plan, 64) == messages + sum(2 * c.nbytes for c in added)


# --- verdicts ------------------------------------------------------------------------------------


def failed(trial: dict[str, Any]) -> None:
    """Make the second seed's DDP trial fail because its ranks diverged."""
    if (trial["arm"], trial["seed"]) == ("ddp", 1):
        trial |= {"status": "failed", "reason": f"rank 0: {DIVERGED_REASON}: arm ddp: …"}


def test_seeds_that_ended_well_give_no_verdict_where_another_trained_apart(tmp_path: Path) -> None:
    folder = fake_methods.make_run(
        tmp_path / "run", arms=["single", "ddp", "zero"], seeds=(0, 1, 2), change=failed
    )
    run = read_run(folder)
    experiment = run.to_experiment(folder)
    read: dict[Any, Any] = {("ddp", seed): {} for seed in (0, 1, 2)}
    judged = compare_serial(run, experiment, read, {"": model("mlp")})
    assert {(j.seed, j.verdict, j.reason) for j in judged} == {
        (seed, "not comparable", "trained_apart") for seed in (0, 1, 2)
    }


def test_accuracies_decide_nothing_where_ranks_trained_apart() -> None:
    def record(backend: str, seed: int, reason: str | None) -> TrialRecord:
        trial = TrialRecord.fresh(("free", backend, seed), "", 2)
        return trial.with_values(
            status="failed" if reason else "ok", reason=reason, test_accuracy=0.9
        )

    def verdicts_with(reason: str | None) -> set[str]:
        seeds = range(4)
        trials = {
            ("free", b, s): record(b, s, reason if (b, s) == ("torch", 3) else None)
            for b in ("torch", "numpy")
            for s in seeds
        }
        rows = [
            TrialComparison(
                arms=("free", "free"),
                seed=s,
                sides=("torch", "numpy"),
                verdict="not comparable",
                reason="free_order" if s < 3 else "trial_missing",
            )
            for s in seeds
        ]
        return {row.verdict for row in resolve_by_seeds(rows, trials)[:3]}

    assert verdicts_with("rank 1 was killed") == {"statistically equal"}
    assert verdicts_with(f"rank 0: {DIVERGED_REASON}: arm free: …") == {"not comparable"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_such_an_arm_is_named_and_not_ranked(tmp_path: Path, lang: str) -> None:
    folder = fake_methods.make_run(
        tmp_path / "run", arms=["single", "ddp", "zero"], seeds=(0, 1, 2), change=failed
    )
    run, words = load([folder]), Messages(lang)
    assert exclusion_reason(MethodResult(run, "ddp", "torch"), words) == words("methods.apart")
    assert exclusion_reason(MethodResult(run, "zero", "torch"), words) == ""


def test_an_older_run_of_a_method_without_an_exchange_is_not_ranked(tmp_path: Path) -> None:
    """A run of an older version, which allowed ``world_size`` = 2 for a method in one process, is
    not ranked."""
    folder = fake_methods.make_run(
        tmp_path / "run", arms=["single", "lower"], change=lambda trial: None
    )
    for name in ("run.json",):
        text = (folder / name).read_text()
        text = text.replace('"method": "amp_bf16"', '"method": "amp_bf16", "world_size": 2')
        (folder / name).write_text(text)
    run = load([folder], force=True)
    for trial in run.trials:
        object.__setattr__(trial, "processes", 2 if trial.arm == "lower" else 1)
    words = Messages("en")
    assert exclusion_reason(MethodResult(run, "lower", "torch"), words) == words(
        "methods.separate", n=2
    )


def test_what_must_have_been_sent_is_most_of_the_closed_form() -> None:
    assert 0.8 < MIN_SENT_SHARE < 1
