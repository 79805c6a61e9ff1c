"""Chaotic trajectories are judged by their final results, over the seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.experiment.store.trial_comparison import RunVerdicts, TrialComparison
from dualml.parity.judge import compare_pair
from dualml.parity.statistics import resolve_by_seeds

ENDS = [0.970, 0.972, 0.968, 0.971]


def make_comparisons(*verdicts: str) -> list[TrialComparison]:
    """Return one comparison of torch and mindspore per seed."""
    reasons = {
        "equal": "inside_envelope",
        "not comparable": "chaotic",
        "different": "outside_envelope",
    }
    return [
        TrialComparison(
            arms=("gd", "gd"),
            seed=seed,
            sides=("torch", "mindspore"),
            verdict=verdict,
            reason=reasons[verdict],
        )
        for seed, verdict in enumerate(verdicts)
    ]


def trials(off: list[float]) -> dict[Key, TrialRecord]:
    records = {}
    for seed, (end, gap) in enumerate(zip(ENDS, off, strict=True)):
        for backend, accuracy in (("torch", end), ("mindspore", end + gap)):
            records["gd", backend, seed] = TrialRecord(
                arm="gd", backend=backend, seed=seed, status="ok", test_accuracy=accuracy
            )
    return records


CLOSE, FAR = [0.001, -0.001, 0.0005, -0.0005], [0.03, 0.031, 0.029, 0.03]


def test_chaos_with_the_same_outcome_is_statistically_equal() -> None:
    comparisons = make_comparisons("equal", *["not comparable"] * 3)
    comparisons = resolve_by_seeds(comparisons, trials(CLOSE))
    assert [c.verdict for c in comparisons] == ["equal", *["statistically equal"] * 3]
    test = comparisons[1].evidence["equivalence"]
    assert test["equivalent"]
    assert comparisons[1].reason == "equivalent_over_seeds"
    assert RunVerdicts(tuple(comparisons)).verdict == "statistically equal"


def test_chaos_with_another_outcome_is_not() -> None:
    comparisons = make_comparisons(*["not comparable"] * 4)
    comparisons = resolve_by_seeds(comparisons, trials(FAR))
    assert {c.verdict for c in comparisons} == {"not comparable"}
    assert {c.reason for c in comparisons} == {"not_equivalent_over_seeds"}
    assert not comparisons[0].evidence["equivalence"]["equivalent"]


@pytest.mark.parametrize(
    "verdicts",
    [
        ["different", *["not comparable"] * 3],
        ["equal", "equal", "different", "not comparable"],
    ],
)
def test_a_seed_that_is_different_is_no_matter_of_statistics(verdicts: list[str]) -> None:
    comparisons = make_comparisons(*verdicts)
    comparisons = resolve_by_seeds(comparisons, trials(CLOSE))
    assert [c.verdict for c in comparisons] == verdicts
    assert RunVerdicts(tuple(comparisons)).verdict == "different"


def test_two_seeds_are_too_few() -> None:
    comparisons = make_comparisons(*["not comparable"] * 2)
    comparisons = resolve_by_seeds(comparisons, trials(CLOSE))
    assert {c.reason for c in comparisons} == {"chaotic"}


def test_what_is_left_to_chance_is_a_matter_of_statistics() -> None:
    comparisons = [
        replace(c, reason="free_order") for c in make_comparisons(*["not comparable"] * 4)
    ]
    comparisons = resolve_by_seeds(comparisons, trials(CLOSE))
    assert {c.verdict for c in comparisons} == {"statistically equal"}
    missing = trials(CLOSE)
    for seed in (0, 1):
        lost = {"status": "failed", "test_accuracy": None}
        missing["gd", "torch", seed] = missing["gd", "torch", seed].model_copy(update=lost)
    comparisons = make_comparisons(*["not comparable"] * 4)
    comparisons = resolve_by_seeds(comparisons, missing)
    assert {c.verdict for c in comparisons} == {"not comparable"}


def test_other_samples_are_refused() -> None:
    records = {
        b: TrialRecord(arm="gd", backend=b, seed=0, status="ok", plan_hash="x", samples_sha256=b)
        for b in ("torch", "numpy")
    }
    verdict = compare_pair(records, dict.fromkeys(records), "torch", "numpy", 10.0)  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.reason) == ("not comparable", "other_samples")
    assert verdict.evidence["samples_sha256"] == ["torch", "numpy"]
