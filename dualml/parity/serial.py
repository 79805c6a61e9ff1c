"""Compare arms with the arm that they must equal, each on its own backend: several ranks with one,
training methods and low precisions with the plain arm."""

from __future__ import annotations

from collections.abc import Mapping

from dualml.algorithms.model.spec import ModelSpec
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import baseline_of, inexactness_reason
from dualml.experiment.schema import Experiment
from dualml.experiment.store.manifest import RunRecord
from dualml.experiment.store.trajectory import Trajectory
from dualml.experiment.store.trial_comparison import Serial, TrialComparison, convert_comparison
from dualml.parity.pairs import compare_trajectories, low_precision_of
from dualml.parity.refusals import (
    REPLICAS_DIVERGED,
    arms_trained_apart,
    has_other_skips,
    not_comparable,
    other_samples,
)
from dualml.parity.statistics import equivalence_over_seeds


def compare_serial(
    run: RunRecord,
    experiment: Experiment,
    read: dict[tuple[str, int], dict[str, Trajectory]],
    specs: Mapping[str, ModelSpec],
) -> list[Serial]:
    """Compare arms with their baseline arm on the same backend, over the same global batches.

    These are n workers against one, and training methods and low precisions against the plain arm.
    Arms without a baseline are left out. Arms that compute something else by design get an empty
    verdict, with the accuracies over all seeds as evidence.

    Args:
        read: (arm, seed) → backend → trajectory of a trial that succeeded.

    Returns:
        At most one judgement per arm, seed and backend; trials whose replicas diverged get one too.
    """
    judgements = list[Serial]()
    trials = run.by_key()
    contrast = ConfigDiff(experiment.arms)
    apart = arms_trained_apart(trials)
    for (name, seed), own in read.items():
        arm = experiment.arms[name]
        if (alone := baseline_of(name, contrast)) is None:
            continue
        samples = min(arm.samples or run.data.train, run.data.train)
        why = inexactness_reason(arm, samples, specs.get(arm.model, specs[""]))
        others = read.get((alone, seed), {})
        for backend in sorted(b for a, b in apart if a == name and (a, b, seed) in trials):
            judgements.append(make_serial(REPLICAS_DIVERGED, name, alone, seed, backend))
        for backend, trajectory in own.items():
            if (name, backend) in apart:
                continue
            pairs = [
                (trials.get((name, backend, s)), trials.get((alone, backend, s)))
                for s in (seed, *experiment.seeds)
            ]
            (here, there), *over = pairs
            if why is not None:
                evidence = equivalence_over_seeds([(a, b) for a, b in over if a and b])
                other_rule = TrialComparison(
                    sides=("", ""), verdict="", reason=why, evidence=evidence
                )
                judgements.append(make_serial(other_rule, name, alone, seed, backend))
                continue
            if backend not in others or here is None or there is None:
                continue
            judged = other_samples(here, there) if arm.partition else None
            if judged is None and has_other_skips(trajectory, others[backend]):
                judged = not_comparable("other_skips")
            if judged is None:
                envelopes = [t.envelope for t in (*own.values(), *others.values()) if t.envelope]
                margin, lower = experiment.parity.margin, low_precision_of(arm, specs)
                judged = compare_trajectories(others[backend], trajectory, margin, envelopes, lower)
            judgements.append(make_serial(judged, name, alone, seed, backend))
    return judgements


def make_serial(found: TrialComparison, arm: str, against: str, seed: int, backend: str) -> Serial:
    """Return a result as the comparison of an arm with the one that it must equal."""
    return convert_comparison(
        found, Serial, arms=(arm, against), seed=seed, sides=(backend, backend)
    )
