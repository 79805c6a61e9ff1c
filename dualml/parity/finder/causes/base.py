"""Hypotheses, their scores, and common numerical errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.finder.context import ReplayContext
from dualml.parity.hypothesis import Hypothesis as Hypothesis
from dualml.parity.hypothesis import Predict as Predict
from dualml.parity.transforms import round_to_half

Arrays = Mapping[str, NDArray[Any]]
TINY = 1e-300
#: (‖a − b‖ / ‖b‖)² above which a tensor counts as changed.
DISTURBED = 1e-8
HALVES = ("float16", "bfloat16")
#: Roughness of a hypothesis that rounds: values near a tie may go the other way.
ROUGH = 0.1


@dataclass(frozen=True)
class Observation:
    """The deviating tensors that a hypothesis has to explain.

    Attributes:
        scene: the replays.
        backend, phase: backend and phase that deviate.
        tensor: the first deviating tensor.
        violations: (update, rank) pairs that deviate in this phase and in none before it.
        clean: (update, rank) pairs that do not deviate, which a hypothesis should leave unchanged.
    """

    scene: ReplayContext
    backend: str
    phase: str
    tensor: str
    violations: Sequence[tuple[int, int]]
    clean: Sequence[tuple[int, int]] = ()

    def recorded(self, step: int, rank: int) -> dict[str, NDArray[Any]]:
        """Return name → tensor of the phase as the backend's rank recorded it in a step."""
        return phase_tensors(self.scene.sides[self.backend].ranks[rank], step, self.phase)

    def expected(self, step: int, rank: int) -> dict[str, NDArray[Any]]:
        """Return name → tensor of the phase that the replay expects of the backend's rank in a
        step."""
        return {
            name: self.scene.expected(self.backend, rank, f"{step}/{self.phase}/{name}")
            for name in self.reference(step, rank, self.phase)
        }

    def reference(self, step: int, rank: int, phase: str) -> dict[str, NDArray[Any]]:
        """Return name → tensor of a phase in the reference's replay of the rank."""
        return phase_tensors(self.scene.reference.ranks[rank], step, phase)

    def comparable_tensors(self) -> Iterator[tuple[int, str, NDArray[Any], NDArray[Any]]]:
        """Yield all tensors of the phase with correct shape, deviating or not, of the deviating
        updates and ranks, as (update, name, recorded, expected)."""
        for step, rank in self.violations:
            right = self.expected(step, rank)
            for name, seen in self.recorded(step, rank).items():
                if name in right and right[name].shape == seen.shape:
                    yield step, name, seen, right[name]

    def transform_all(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Predict:
        """Return a prediction, a function of (update, rank), that applies ``change`` to every
        expected tensor of the phase."""
        return lambda step, rank: {n: change(a) for n, a in self.expected(step, rank).items()}

    def scale_all(self, factor: float) -> Predict:
        """Return a prediction, a function of (update, rank), that multiplies every expected tensor
        of the phase by a factor."""
        return self.transform_all(lambda a: factor * a)

    @property
    def world_size(self) -> int:
        """Number of ranks of the trial."""
        return len(self.scene.reference.ranks)

    @property
    def violating_ranks(self) -> list[int]:
        """The ranks with a deviation that has to be explained, sorted."""
        return sorted({rank for _, rank in self.violations})

    def batch_share(self, step: int, rank: int) -> float:
        """Return the share of a rank's samples in the batch, by which its mean gradient is
        weighted."""
        return len(self.scene.rank_indices(step, rank)) / len(self.scene.batch_indices(step))

    def previous_gradient(self, step: int) -> Mapping[str, NDArray[Any]]:
        """Return the reference's gradient of the previous update over the whole batch; empty if its
        initial state is not known."""
        if step - 1 not in self.scene.states:
            return {}
        return self.scene.gradient(step - 1, self.scene.batch_indices(step - 1))[1]


def phase_tensors(arrays: Arrays, step: int, phase: str) -> dict[str, NDArray[Any]]:
    """Return name → array of the tensors of one update and phase, from ``arrays`` by
    ``STEP/PHASE/NAME``."""
    start = f"{step}/{phase}/"
    return {key[len(start) :]: a for key, a in arrays.items() if key.startswith(start)}


def unexplained_share(suspect: Observation, guess: Hypothesis) -> float:
    """Return the unexplained share of the difference: 0: none, 1: all of it; above 1 if the
    hypothesis makes it worse.

    Every tensor is weighted by its relative squared error. Tensors that the hypothesis does not
    mention keep their expected values; of a forward pass only the first deviating output counts.
    """
    left = total = 0.0
    for step, rank in suspect.violations:
        right, predicted = suspect.expected(step, rank), guess.predict(step, rank)
        for name, seen in suspect.recorded(step, rank).items():
            # Later layers follow from this one: only its output has to be explained.
            if name in right and (suspect.phase != "forward" or name == suspect.tensor):
                total += relative_error(seen, right[name])
                left += relative_error(seen, predicted.get(name, right[name]))
    return float(np.sqrt(left / total)) if total > 0 else 1.0


def disturbs_clean(suspect: Observation, guess: Hypothesis) -> bool:
    """Return whether the hypothesis noticeably changes updates that do not deviate.

    A fault may be intermittent; but of two hypotheses that explain equally much, the one that
    leaves correct updates unchanged is better.
    """
    return any(
        relative_error(predicted, suspect.expected(step, rank)[name]) > DISTURBED
        for step, rank in suspect.clean
        for name, predicted in guess.predict(step, rank).items()
        if name in suspect.expected(step, rank)
    )


def relative_error(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return (‖a − b‖ / ‖b‖)², at most 1e6, which is also the value for different shapes or where
    only one is finite. 0 if some difference is not finite although both are finite in the same
    places."""
    if a.shape != b.shape:
        return 1e6
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        off, size = float(np.square(a - b).sum()), float(np.square(b).sum())
    if not np.isfinite(off):
        return 1e6 if (np.isfinite(a) != np.isfinite(b)).any() else 0.0
    return min(off / max(size, TINY), 1e6) if off else 0.0


def fit_factor(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    """Return the c that minimises Σ‖a − c·b‖² over pairs (a, b); 0 if all b are zero."""
    up = sum(float(np.vdot(b.astype(np.float64), a.astype(np.float64))) for a, b in pairs)
    down = sum(float(np.square(b.astype(np.float64)).sum()) for _, b in pairs)
    return up / down if down else 0.0


def fit_weights(columns: Sequence[NDArray[Any]], target: NDArray[Any]) -> NDArray[Any]:
    """Return the weights with which columns best sum to a target, rounded to multiples of 1/4."""
    weights = np.linalg.lstsq(np.stack(columns, 1), target, rcond=None)[0]
    rounded: NDArray[Any] = np.round(weights * 4) / 4 + 0.0  # no -0
    return rounded


def concat_flat(named: Arrays) -> NDArray[np.float64]:
    """Return all arrays as one float64 vector."""
    return np.concatenate([a.astype(np.float64).ravel() for a in named.values()])


def global_norm(named: Arrays) -> float:
    """Return the Euclidean norm over all arrays."""
    return float(np.sqrt(sum(np.square(a.astype(np.float64)).sum() for a in named.values())))


def clip_by_norm(named: Mapping[str, NDArray[Any]], norm: float) -> dict[str, NDArray[Any]]:
    """Return the arrays scaled down so that their global norm is at most ``norm``."""
    size = global_norm(named)
    return {n: a * min(1.0, norm / size) if size else a for n, a in named.items()}


def half_precision_tensors(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses that the tensors of the phase are rounded to float16, or to bfloat16."""
    for kind in HALVES:
        yield Hypothesis(
            "half-precision",
            suspect.transform_all(partial(round_to_half, kind=kind)),
            {"type": kind},
            roughness=ROUGH,
        )


def scaled_tensors(suspect: Observation, cause: str) -> Hypothesis:
    """Return the hypothesis that all tensors are multiplied by a fitted number."""
    factor = fit_factor([(seen, right) for _, _, seen, right in suspect.comparable_tensors()])
    return Hypothesis(cause, suspect.scale_all(factor), {"factor": factor}, fitted_count=1)
