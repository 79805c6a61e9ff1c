"""Equivalence tests over several seeds, for trajectories that rounding alone drives apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dualml.common.json_types import JsonObject
from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.experiment.store.trial_comparison import TrialComparison
from dualml.parity.refusals import arms_trained_apart

MARGIN = 0.01  # accuracies within one percentage point count as the same result
LEVEL = 0.05
MIN_SEEDS = 3  # minimum number of seeds for an interval or a test
#: Reasons for which two correct trajectories may differ.
LEGITIMATE = ("chaotic", "free_order")


def check_equivalence(a: Sequence[float], b: Sequence[float], margin: float = MARGIN) -> JsonObject:
    """Test whether the mean difference is inside ±``margin`` with two one-sided paired t-tests.

    Args:
        a, b: one value (a fraction) for each seed, paired; at least `MIN_SEEDS`, else a
            `ValueError`.

    Returns:
        ``{"equivalent", "mean", "low", "high", "margin", "seeds"}``, the interval being the
        1 − 2·LEVEL confidence interval that the tests are equivalent to.

    Source: Schuirmann 1987, "A comparison of the two one-sided tests procedure …".
    """
    from scipy import special  # `scipy.stats` takes a second to import

    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if len(gap) < MIN_SEEDS:
        raise ValueError(f"{MIN_SEEDS} seeds at least; received {len(gap)}")
    mean, error = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
    reach = float(special.stdtrit(len(gap) - 1, 1 - LEVEL)) * error
    low, high = mean - reach, mean + reach
    return {
        "equivalent": -margin < low and high < margin,
        "mean": mean,
        "low": low,
        "high": high,
        "margin": margin,
        "seeds": len(gap),
    }


def resolve_by_seeds(
    comparisons: Sequence[TrialComparison], trials: Mapping[Key, TrialRecord]
) -> list[TrialComparison]:
    """Decide trajectories that are chaotic or nondeterministic by their test accuracies over the
    seeds.

    Nothing changes for an arm and pair of backends that is ``different`` with any seed (an observed
    difference is not a matter of statistics), whose replicas diverged, or that has too few seeds.

    Returns:
        The comparisons in the same order, with other verdicts and reasons where the seeds decide.
    """
    apart = arms_trained_apart(trials)
    groups: dict[tuple[str, str, str], list[TrialComparison]] = {}
    for c in comparisons:
        groups.setdefault((c.arm, c.a, c.b), []).append(c)
    tested: dict[tuple[str, str, str], JsonObject] = {}
    for (arm, a, b), group in groups.items():
        undecided = any(c.reason in LEGITIMATE for c in group)
        different = any(c.verdict == "different" for c in group)
        if not undecided or different or apart & {(arm, a), (arm, b)}:
            continue
        fair = [c.seed for c in group if c.verdict == "equal" or c.reason in LEGITIMATE]
        pairs = [(trials[arm, a, seed], trials[arm, b, seed]) for seed in fair]
        tested[arm, a, b] = equivalence_over_seeds(pairs)
    return [
        decide_by_seeds(c, tested.get((c.arm, c.a, c.b), {})) if c.reason in LEGITIMATE else c
        for c in comparisons
    ]


def decide_by_seeds(c: TrialComparison, tested: JsonObject) -> TrialComparison:
    """Return a comparison with the result of `equivalence_over_seeds`: ``statistically equal``, or
    with its own verdict and another reason if the accuracies are not equivalent. An empty result
    leaves it unchanged."""
    if not tested:
        return c
    evidence = {**c.evidence, **tested}
    if tested["equivalence"]["equivalent"]:
        return replace(
            c, verdict="statistically equal", reason="equivalent_over_seeds", evidence=evidence
        )
    return replace(c, reason="not_equivalent_over_seeds", evidence=evidence)


def equivalence_over_seeds(pairs: list[tuple[TrialRecord, TrialRecord]]) -> JsonObject:
    """Test the accuracies of trial pairs, one pair per seed, for equivalence.

    Returns:
        ``{"equivalence": result of check_equivalence}``; empty if fewer than three pairs have
        accuracies of two successful trials.
    """
    ended = [(a.test_accuracy, b.test_accuracy) for a, b in pairs if a.status == b.status == "ok"]
    accuracies = [(a, b) for a, b in ended if a is not None and b is not None]
    if len(accuracies) < MIN_SEEDS:
        return {}
    return {
        "equivalence": check_equivalence([a for a, _ in accuracies], [b for _, b in accuracies])
    }
