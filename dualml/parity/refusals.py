"""Reasons for which two trials are not compared by their trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.algorithms.precision import SLOT
from dualml.experiment.store.agreement import is_divergence_reason
from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.experiment.store.trajectory import Trajectory
from dualml.experiment.store.trial_comparison import TrialComparison


def not_comparable(reason: str, evidence: Mapping[str, Any] | None = None) -> TrialComparison:
    """Return the verdict ``not comparable`` with its reason."""
    return TrialComparison(
        sides=("", ""), verdict="not comparable", reason=reason, evidence=evidence or {}
    )


def other_samples(a: TrialRecord, b: TrialRecord) -> TrialComparison | None:
    """Return the verdict on two trials that recorded that they trained on different samples, or in
    another order; None if they did not. A trial without a fingerprint of its samples counts as the
    same."""
    if len({t.samples_sha256 for t in (a, b) if t.samples_sha256}) < 2:
        return None
    return not_comparable("other_samples", {"samples_sha256": [a.samples_sha256, b.samples_sha256]})


def has_other_skips(a: Trajectory, b: Trajectory) -> bool:
    """Return whether two trials with a scaled loss skipped different updates: whether their loss
    scalers differ at a step that both traced. False without a loss scaler.

    A gradient of the whole batch may overflow in the low-precision type where the gradients of
    parts, which ranks add in float32, do not.
    """
    scales = [key for key in a.tensors.keys() & b.tensors.keys() if f"/{SLOT}/" in key]
    return any(not np.array_equal(a.tensors[key], b.tensors[key]) for key in scales)


#: The verdict if the ranks of one side diverged with some seed; accuracies do not decide either.
REPLICAS_DIVERGED = not_comparable("trained_apart")


def arms_trained_apart(trials: Mapping[Key, TrialRecord]) -> set[tuple[str, str]]:
    """Return the (arm, backend) pairs whose replicas diverged from each other with at least one
    seed."""
    return {(arm, b) for (arm, b, _), trial in trials.items() if is_divergence_reason(trial.reason)}
