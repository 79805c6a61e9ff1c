"""Methods that compute in a lower precision, against our own training in the same one.

Over the seeds such a method is held against float32 by its accuracy; here, seed by seed, by its
trajectory: against the arm without a method that follows our rule (`dualml.precision`), within that
arm's envelope, which is as wide as roundings of the type are. That is wide enough for float32
itself, so that a method inside float32's own envelope has lowered nothing.

What is judged is what the method does: losses, weights and the optimizer's state. Its layers are
looked at outside of its loop, where they compute in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualml.experiment.contrast import Contrast
from dualml.experiment.exact import of_precision
from dualml.experiment.schema import Experiment
from dualml.methods import METHODS
from dualml.parity.pairs import compare
from dualml.store.trajectory import Trajectory

LOOKED_AT = "forward/"
#: Backend → its trajectory, of one arm and seed.
Read = Mapping[str, Trajectory]


def lowered(experiment: Experiment, read: Mapping[tuple[str, int], Read]) -> list[dict[str, Any]]:
    """A judgement for every method in a lower precision that has an arm of ours beside it.

    Args:
        read: arm and seed → what succeeded.

    Returns:
        As those of several ranks against one in ``parity.json``; they decide no exit code, since an
        engine may cast at other places than our rule does.
    """
    judgements, contrast = [], Contrast(experiment.arms)
    for (name, seed), here in read.items():
        for backend, trajectory in here.items():
            info = METHODS.get(backend, {}).get(experiment.arms[name].method)
            if info is None or info.precision == "fp32":
                continue
            partner = of_precision(name, info.precision, contrast)
            ours = read.get((partner, seed), {}) if partner else {}
            if backend not in ours:
                continue
            margin = experiment.parity.margin
            judged = held(trajectory, ours, margin)
            single = of_precision(name, "fp32", contrast)
            full = read.get((single, seed), {}) if single else {}
            if backend in full and held(trajectory, full, margin)["verdict"] == "equal":
                judged |= {"verdict": "different", "reason": "float32", "first_divergence": None}
            pair = {"arm": name, "seed": seed, "backend": backend, "against": partner}
            judgements.append({**pair, **judged})
    return judgements


def held(method: Trajectory, ours: Read, margin: float) -> dict[str, Any]:
    """Against our arm on the same backend, in the envelopes of that arm on all of them."""
    envelopes = [t.envelope for t in ours.values() if t.envelope]
    plain = ours[method.backend]
    return compare(updates_of(plain), updates_of(method), margin, envelopes)


def updates_of(trajectory: Trajectory) -> Trajectory:
    """Without the layers' outputs."""
    kept = {k: v for k, v in trajectory.tensors.items() if not k.startswith(LOOKED_AT)}
    return replace(trajectory, tensors=kept)
