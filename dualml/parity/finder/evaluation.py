"""Judge a hypothesis: what it explains of every recorded update, to the measured rounding."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.parity.finder.causes.base import (
    Hypothesis,
    Observation,
    Predict,
    disturbs_clean,
    unexplained_share,
)
from dualml.parity.finder.causes.rules import UpdateInputs
from dualml.parity.finder.lines.search import round_digits
from dualml.parity.finder.localise import rounding_envelope, safe_distance
from dualml.parity.finder.search import HypothesisScore
from dualml.parity.places import FLOOR

#: A cause is believed only if it explains at least this share of the difference.
MIN_EXPLAINED_SHARE = 0.9
#: Own rounding of a deviating backend counts up to this share of its deviation: a fault does not
#: hide in the noise that it makes.
OWN_SHARE = 0.01


def judge(suspect: Observation, guess: Hypothesis) -> HypothesisScore | None:
    """Return what a hypothesis explains; None if it cannot be computed for these tensors, or if one
    of its numbers is not finite.

    A hypothesis that fits the deviating updates and changes correct ones counts as disturbing, and
    its detail gets these ``updates``.

    Args:
        suspect: the deviating tensors of one backend and phase.
    """
    if any(isinstance(v, float) and not math.isfinite(v) for v in guess.detail.values()):
        return None  # the fit failed: it would "explain" any NaN
    try:
        score = 1 - unexplained_share(suspect, guess)
        disturbing, detail, fits = disturbs_clean(suspect, guess), guess.detail, list[int]()
        if score >= MIN_EXPLAINED_SHARE:
            fits = explained_updates(suspect, guess, correct_too=True)
            if not fits and (fits := explained_updates(suspect, guess, correct_too=False)):
                disturbing, detail = True, {**detail, "updates": fits}
    except (ArithmeticError, ValueError, LookupError):
        return None
    digest = digest_of(suspect, guess) if fits else ""
    return HypothesisScore(
        guess.cause, detail, score, fits, disturbing, guess.fitted_count, guess.cost, digest
    )


def digest_of(suspect: Observation, guess: Hypothesis) -> str:
    """Return a hash of what a hypothesis's update computes from random tensors, equal for equal
    updates; empty if it has none, or needs more than tensors."""
    if guess.update is None:
        return ""
    scene, draw = suspect.scene, np.random.default_rng(0)
    names = {n: w.shape for n, w in scene.recorded_start(scene.steps[0])[0].items()}
    told: list[Any] = []
    for step in (1, 2, 5):
        p, g, *states = (
            {n: draw.normal(size=shape) for n, shape in names.items()}
            for _ in range(2 + len(scene.arm.rule.state_keys))
        )
        s = {
            key: {n: np.abs(a) for n, a in named.items()}
            for key, named in zip(scene.arm.rule.state_keys, states, strict=True)
        }
        try:
            with np.errstate(all="ignore"):
                new, after = guess.update(UpdateInputs(p, g, s, step, scene.arm.rule.lr / step))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return ""
        told += [a.ravel()[:50] for named in (new, *after.values()) for a in named.values()]
    return hashlib.sha256(round_digits(np.concatenate(told))).hexdigest()


def explained_updates(suspect: Observation, guess: Hypothesis, correct_too: bool) -> list[int]:
    """Return the deviating updates, sorted, if a hypothesis explains each of them to rounding, in
    its own phase and in those that follow from it; else an empty list. With ``correct_too`` it must
    leave the updates that do not deviate as they are."""
    deviating: set[int] = set()
    for phase, predict in ((suspect.phase, guess.predict), *guess.also.items()):
        here = replace(suspect, phase=phase)
        for step, rank in iterate_updates(here, suspect):
            gaps = list(residuals(here, step, rank, predict))
            is_correct = all(far <= limit for _, far, limit in gaps)
            if not is_correct:
                deviating.add(step)
            if is_correct and not correct_too:
                continue
            for left, far, limit in gaps:
                if left > (max(limit, guess.roughness * far) if guess.roughness else limit):
                    return []
    return sorted(deviating)


def iterate_updates(here: Observation, suspect: Observation) -> Iterator[tuple[int, int]]:
    """Yield the (update, rank) pairs that a hypothesis has to explain in the phase of ``here``.

    In the phases ``update`` and ``state`` these are all replayed updates of the ranks that deviate
    in ``suspect``, as each is compared with the rule on the backend's own gradient; in other phases
    the pairs of ``suspect`` that deviate there first, and then those that do not deviate.
    """
    if here.phase in ("update", "state"):
        yield from ((s, r) for s in suspect.scene.steps for r in suspect.violating_ranks)
    else:
        yield from (*suspect.violations, *suspect.clean)


def residuals(
    here: Observation, step: int, rank: int, predict: Predict
) -> Iterator[tuple[float, float, float]]:
    """Yield (distance from the prediction, distance from the reference, rounding limit) of the
    tensors of an update; of a forward pass only the first deviating one."""
    right, predicted = here.expected(step, rank), predict(step, rank)
    for name, seen in here.recorded(step, rank).items():
        if name in right and (here.phase != "forward" or name == here.tensor):
            far = safe_distance(seen, right[name])
            left = safe_distance(seen, predicted.get(name, right[name]))
            key = f"{step}/{here.phase}/{name}"
            yield left, far, rounding_limit(here, rank, key, far)


def rounding_limit(suspect: Observation, rank: int, key: str, far: float | None = None) -> float:
    """Return the largest relative distance that rounding explains: the margin times the envelope of
    a tensor.

    The deviating backend's own envelope counts if it is larger, but gives at most 1 % of ``far``;
    without ``far`` at most 100 times what the envelope of all backends gives.

    Args:
        key: ``STEP/PHASE/TENSOR``.
        far: distance of the tensor from its expected value.
    """
    scene = suspect.scene
    margin = scene.plan.experiment.parity.margin
    shared = rounding_envelope(scene, rank, key)
    own = scene.sides[suspect.backend].widths[rank].get(key, 0.0)
    trusted = max(shared, FLOOR) * margin
    if far is None:
        return max(trusted, min(own * margin, 100 * trusted))
    return max(trusted, min(own * margin, OWN_SHARE * far))
