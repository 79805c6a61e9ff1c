"""Compare training methods in low precision with our own training in the same precision.

Over all seeds such a method is compared with float32 by its accuracy. Here it is compared seed by
seed by its trajectory, with the arm without a method that follows our casting rule
(`dualml.algorithms.precision`), within that arm's envelope. This envelope is as wide as roundings
of the type and therefore contains float32 itself, so a method inside float32's own envelope has not
lowered the precision at all.

Only what the method does is judged: losses, weights and optimizer state. Its layer outputs are
captured outside of its training loop, where they are computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import single_process_arm
from dualml.experiment.methods import METHODS
from dualml.experiment.schema import Experiment
from dualml.experiment.store.trajectory import Trajectory
from dualml.experiment.store.trial_comparison import Serial, TrialComparison
from dualml.parity.pairs import compare_trajectories
from dualml.parity.serial import make_serial

#: Prefix of the names of the recorded activations.
FORWARD_PREFIX = "forward/"
#: Backend → its trajectory, for one arm and seed.
Read = Mapping[str, Trajectory]


def compare_low_precision_methods(
    experiment: Experiment, read: Mapping[tuple[str, int], Read]
) -> list[Serial]:
    """Judge every training method in low precision that has a comparable arm without a method. A
    method inside float32's own envelope is ``different``.

    Args:
        read: (arm, seed) → trajectories of the backends that succeeded.

    Returns:
        Judgements in the form of ``serial`` in ``parity.json``. They decide no exit code, because
            an engine may cast at other places than our rule does.
    """
    judgements, contrast = list[Serial](), ConfigDiff(experiment.arms)
    for (name, seed), here in read.items():
        for backend, trajectory in here.items():
            info = METHODS.get(backend, {}).get(experiment.arms[name].method)
            if info is None or info.precision == "fp32":
                continue
            partner = single_process_arm(name, contrast, info.precision)
            ours = read.get((partner, seed), {}) if partner else {}
            if partner is None or backend not in ours:
                continue
            margin = experiment.parity.margin
            judged = compare_with_arm(trajectory, ours, margin)
            single = single_process_arm(name, contrast, "fp32")
            full = read.get((single, seed), {}) if single else {}
            if backend in full and compare_with_arm(trajectory, full, margin).verdict == "equal":
                judged = replace(judged, verdict="different", reason="float32", first=None)
            judgements.append(make_serial(judged, name, partner, seed, backend))
    return judgements


def compare_with_arm(method: Trajectory, ours: Read, margin: float) -> TrialComparison:
    """Compare a method with the arm without a method on the same backend, ignoring layer outputs.

    Args:
        ours: backend → trajectory of that arm; the envelopes of all backends count.
    """
    envelopes = [t.envelope for t in ours.values() if t.envelope]
    plain = ours[method.backend]
    return compare_trajectories(
        drop_layer_outputs(plain), drop_layer_outputs(method), margin, envelopes
    )


def drop_layer_outputs(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without the recorded outputs of layers (``forward/…`` tensors)."""
    kept = {k: v for k, v in trajectory.tensors.items() if not k.startswith(FORWARD_PREFIX)}
    return replace(trajectory, tensors=kept)
