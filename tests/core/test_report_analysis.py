"""The report's sentences: their numbers are those of the run, and change with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fake_run
import numpy as np
import pytest
from page_parts import findings_by_key, same_in_both_languages

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.report.headline import headline


def records(path: Path, change: Callable[[dict], None]) -> None:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for record in lines:
        change(record)
    path.write_text("".join(json.dumps(r) + "\n" for r in lines), "utf-8")


def set_accuracy(folder: Path, arm: str, backend: str, reach: int) -> None:
    """Make every seed of an arm and backend reach 95 % at update ``reach``, and 10 % before it."""
    for path in folder.glob(f"trials/{arm}/{backend}/seed*/rank0.jsonl"):

        def change(record: dict) -> None:
            if record["metric"] == "test_accuracy":
                record["value"] = 0.95 if record["step"] >= reach else 0.1

        records(path, change)


def test_the_first_arm_and_its_numbers(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], failed=None)
    set_accuracy(tmp_path, "adam", "torch", 200)
    set_accuracy(tmp_path, "sgd", "torch", 400)
    set_accuracy(tmp_path, "gd", "torch", 10**9)
    said = findings_by_key(tmp_path)
    assert said["convergence.first"] == [
        "On torch, adam reached 90 % test accuracy first by every measure: "
        "after 200 updates, 2 epochs and 1 s of training."
    ]
    assert (
        "gd never reached 90 % on torch; its highest test accuracy was 10.0 %."
        in (said["convergence.never"])
    )
    set_accuracy(tmp_path, "sgd", "torch", 100)
    assert (
        "On torch, sgd reached 90 % test accuracy first"
        in findings_by_key(tmp_path)["convergence.first"][0]
    )


def test_winners_may_differ_by_measure(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], failed=None)
    set_accuracy(tmp_path, "adam", "torch", 200)
    set_accuracy(tmp_path, "sgd", "torch", 225)  # 0.9 s against 1 s
    set_accuracy(tmp_path, "gd", "torch", 10)
    assert findings_by_key(tmp_path)["convergence.split"] == [
        "On torch, gd needed the fewest updates to reach 90 % test accuracy (10 updates), "
        "adam the fewest epochs (2 epochs) and sgd the least training time (0.9 s)."
    ]


def test_arms_that_needed_the_same_share_the_place(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], failed=None)
    for arm, reach in (("adam", 200), ("sgd", 200), ("gd", 10**9)):
        set_accuracy(tmp_path, arm, "torch", reach)
    assert findings_by_key(tmp_path)["convergence.split"] == [
        "On torch, sgd and adam needed the fewest updates to reach 90 % test accuracy "
        "(200 updates), sgd and adam the fewest epochs (2 epochs) and sgd the least training time "
        "(0.8 s)."
    ]


def test_nobody_reached_it(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], arms={"gd": fake_run.MAIN["gd"]}, failed=None)
    said = findings_by_key(tmp_path)
    assert (
        "No arm reached 90 % test accuracy; the highest at the end was 28."
        in (said["convergence.nobody"][0])
    )
    assert "determinism.no_noisy" in said


def test_some_seeds_reached_it(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], failed=None)
    set_accuracy(tmp_path, "adam", "torch", 200)

    def lower_accuracy(record: dict) -> None:
        if record["metric"] == "test_accuracy":
            record["value"] = 0.5

    records(tmp_path / "trials/adam/torch/seed1/rank0.jsonl", lower_accuracy)
    assert "adam reached 90 % with 1 seed of 2" in findings_by_key(tmp_path)["convergence.some"][0]


def test_roughness_is_what_its_definition_says(tmp_path: Path) -> None:
    fake_run.make_run(tmp_path, backends=["torch"], seeds=[0], failed=None)
    loss = fake_run.curve("sgd", fake_run.MAIN["sgd"], "torch", 0)[250:]
    expected = np.std(np.diff(loss)) / np.mean(loss)
    assert f"sgd {expected:.2g}" in findings_by_key(tmp_path)["smoothness.list"][0]

    def flat(record: dict) -> None:
        if record["metric"] == "loss":
            record["value"] = 0.5

    records(tmp_path / "trials/sgd/torch/seed0/rank0.jsonl", flat)
    assert "sgd 0, gd" in findings_by_key(tmp_path)["smoothness.list"][0]
    assert (
        "The loss of sgd did not fluctuate at all"
        in findings_by_key(tmp_path)["smoothness.zero"][0]
    )


def test_the_cost_of_determinism(tmp_path: Path) -> None:
    said = findings_by_key(fake_run.make_run(tmp_path, failed=None))
    assert said["determinism.gradients"][0] == (
        "One update of gd computes 1,200 gradients of single samples, "
        "100 times as many as one of sgd (12 gradients of single samples)."
    )
    sentence = said["determinism.same_epochs"][0]
    assert sentence.startswith("At the last evaluation within 5 epochs,")
    assert "gd had made 5 updates" in sentence
    assert "sgd had made 500 updates" in sentence
    # 5 × 0.31 s × mean(2.5, 1, 1.75) and 500 × 0.004 s × the same
    assert "in 2.71 s" in sentence
    assert "in 3.5 s" in sentence


def test_the_ratio_of_times_is_a_median_over_seeds(tmp_path: Path) -> None:
    def change(run: dict) -> None:
        for t in run["trials"]:
            if t["arm"] == "adam":
                seconds = {"torch": [2, 2, 2], "mindspore": [4, 6, 100]}
                t["train_s"] = seconds[t["backend"]][t["seed"]]

    fake_run.make_run(
        tmp_path, backends=["torch", "mindspore"], seeds=[0, 1, 2], failed=None, change=change
    )
    assert findings_by_key(tmp_path)["speed.ratio"] == [
        "Training on mindspore took 1.75 (gd), 1.75 (sgd) and 3 (adam) times as long as on torch "
        "(median over seeds)."
    ]


def test_best_learning_rate_and_batch_size(tmp_path: Path) -> None:
    arms = fake_run.MAIN | fake_run.SWEEP

    def change(run: dict) -> None:
        for t in run["trials"]:
            if t["arm"].startswith("adam-lr"):
                t["final_loss"] = {"0.001": 0.3, "0.01": 0.2, "0.1": 0.9}[t["arm"][7:]]
                t["test_accuracy"] = 0.5

    said = findings_by_key(fake_run.make_run(tmp_path, arms=arms, failed=None, change=change))
    assert (
        "Best learning rate of adam on numpy, torch and mindspore among 0.001, 0.01 and 0.1: "
        "0.01, with a final training loss of 0.2 and 50.0 % test accuracy." in said["sweep.best"]
    )
    assert said["sweep.edge"] == [
        "0.1 lies at the edge of the learning rates tried for sgd; the best one may lie beyond."
    ]
    assert len(said["sweep.size"]) == 3
    assert "from 8 to 120" in said["sweep.size"][0]
    assert "sweep.rates" not in said


def test_a_rate_that_moves_with_the_batch_size_is_said(tmp_path: Path) -> None:
    arms = fake_run.MAIN | {
        f"sgd-b{size}": fake_run.arm("sgd", rate, size, 2, "batch-size")
        for size, rate in ((8, 0.01), (24, 0.05))
    }
    said = findings_by_key(fake_run.make_run(tmp_path, arms=arms))
    assert "(0.01 and 0.05)" in said["sweep.rates"][0]
    assert "sweep.no_rates" in said


def test_parity_sentences(tmp_path: Path) -> None:
    said = findings_by_key(fake_run.make_run(tmp_path))
    assert said["parity.count"] == ["16 comparisons: 15 equal and 1 different."]
    assert said["parity.diverged"] == [
        "sgd, seed 1: torch and mindspore are different; first outside the envelope at update 12 "
        "in gradient conv1.weight: distance 4.0×10⁻³, envelope 8.0×10⁻⁷."
    ]
    fake_run.make_run(tmp_path, different=None)
    assert "parity.diverged" not in findings_by_key(tmp_path)


@pytest.mark.parametrize(
    ("different", "tone", "text"),
    [
        (("sgd", 1), "bad", "gd and adam are equal within rounding; sgd is different."),
        (None, "good", "gd, sgd and adam are equal within rounding."),
    ],
)
def test_headline(tmp_path: Path, different: tuple | None, tone: str, text: str) -> None:
    run = load([fake_run.make_run(tmp_path, different=different)])
    got, sentence = headline(run, Messages("en"))
    assert got == tone
    assert sentence == f"numpy, torch and mindspore: {text}"


def test_a_comparison_that_could_not_be_made(tmp_path: Path) -> None:
    path = fake_run.make_run(tmp_path) / "parity.json"
    parity = json.loads(path.read_text("utf-8"))
    pair = {"arm": "gd", "seed": 1, "a": "torch", "b": "mindspore"}
    parity["comparisons"].append(
        pair | {"verdict": "not comparable", "reason": "trial_missing", "evidence": {}}
    )
    path.write_text(json.dumps(parity), "utf-8")
    assert findings_by_key(tmp_path)["parity.incomparable"] == [
        "gd, seed 1: torch and mindspore are not comparable: a trial is missing or did not succeed."
    ]
    assert "gd is not comparable" in headline(load([tmp_path]), Messages("en"))[1]


def test_caveats_follow_the_run(tmp_path: Path) -> None:
    said = findings_by_key(fake_run.make_run(tmp_path / "a"))
    for key in ("threads", "cores", "embedded", "quick", "seeds", "failed"):
        assert f"caveats.{key}" in said
    assert said["caveats.failed"] == ["1 of 18 trials did not succeed; means leave it out."]
    other = fake_run.make_run(
        tmp_path / "b", seeds=[0], quick=False, notice=None, failed=None, parity=False
    )
    said = findings_by_key(other)
    for key in ("embedded", "quick", "seeds", "failed"):
        assert f"caveats.{key}" not in said
    assert "caveats.one_seed" in said
    assert "caveats.no_parity" in said


def test_both_languages_say_the_same_with_the_same_numbers(tmp_path: Path) -> None:
    same_in_both_languages(load([fake_run.make_run(tmp_path, arms=fake_run.MAIN | fake_run.SWEEP)]))
