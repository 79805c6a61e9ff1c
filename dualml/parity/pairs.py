"""Compare two trajectories with the rounding envelope: equal, or where they first diverge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.precision import ROUNDOFF, low_precision_layers, round_to_type
from dualml.common.distance import distance, elementwise_distances
from dualml.common.errors import UserError
from dualml.experiment.arm import Arm
from dualml.experiment.comparison import FirstDivergence
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.trajectory import PHASES, Trajectory
from dualml.experiment.store.trial_comparison import TrialComparison
from dualml.parity.envelope import robust_envelopes
from dualml.parity.places import (
    FLOOR,
    Distance,
    envelope_horizon,
    farthest_by_phase,
    first_chaotic_step,
    is_lone_kink,
    max_envelope,
    max_loss_envelope,
)

#: Phases whose tensors have the low precision, if there is one; their floor is its rounding.
LOWER_PHASES = ("forward", "gradient")


class LowPrecision(NamedTuple):
    """The low-precision part of an arm: its type, and the layers whose outputs have that type."""

    precision: str
    layers: Sequence[str]


def low_precision_of(arm: Arm, specs: Mapping[str, ModelSpec]) -> LowPrecision | None:
    """Return an arm's low-precision type and the layers whose outputs have it; None if it trains in
    float32 or trains nothing.

    Args:
        specs: model specs by name; the experiment's own model under an empty name.
    """
    if arm.kind != "train" or not arm.plan_precision.is_low:
        return None
    spec = specs.get(arm.variant, specs[""])
    return LowPrecision(arm.precision, low_precision_layers(spec.layers))


def compare_trajectories(
    a: Trajectory,
    b: Trajectory,
    margin: float,
    envelopes: list[Envelope] | None = None,
    lower: LowPrecision | None = None,
) -> TrialComparison:
    """Judge two trajectories of the same training: equal, different or not comparable.

    Args:
        margin: a distance is outside when it exceeds ``margin`` × the envelope, or × a rounding if
            that is larger; nothing is judged from the first chaotic step on.
        envelopes: envelopes of all float32 backends that ran this arm and seed, because the effect
            of rounding does not depend on the compared pair; None: those of ``a`` and ``b``.
        lower: the low-precision part of the arm; None if there is none.

    Returns:
        The comparison of the two backends, without arm and seed.

    Raises:
        UserError: a tensor has another shape in the other trajectory.
    """
    check_shapes(a, b)
    sides = a.backend, b.backend
    drawn = [t.envelope for t in (a, b) if t.envelope] if envelopes is None else envelopes
    drawn = robust_envelopes(drawn, output_layer(a))
    points = list(measure_distances(a, b, drawn, lower))
    if not points:
        return TrialComparison(sides=sides, verdict="not comparable", reason="no_common_steps")
    chaos = first_chaotic_step(a, b, drawn)
    judged = [p for p in points if chaos is None or p.step < chaos]
    strays = [p for p in judged if p.ratio > margin]
    outside = [] if is_lone_kink(strays, output_layer(a)) else strays
    verdict, reason = "equal", "inside_envelope"
    if outside:
        verdict, reason = "different", "outside_envelope"
    elif chaos is not None:
        verdict, reason = "not comparable", "chaotic"
    elif strays:
        reason = "lone_kink"
    return TrialComparison(
        sides=sides,
        verdict=verdict,
        reason=reason,
        evidence={
            "margin": margin,
            "chaotic_from": chaos,
            "worst_ratio": max((p.ratio for p in judged), default=None),
            "judged_steps": max((p.step for p in judged), default=0),
        },
        steps=max(p.step for p in points),
        phases={
            phase: {
                "max": max(p.distance for p in of_phase),
                "final": max(p.distance for p in of_phase if p.step == of_phase[-1].step),
                "envelope": worst.envelope,
                "ratio": worst.ratio,
                "step": worst.step,
                "tensor": worst.tensor,
            }
            for phase, of_phase, worst in farthest_by_phase(points, PHASES)
        },
        first=first_divergence(outside, judged, margin),
        curve=loss_curve(points),
        outcome={
            "final_loss": [a.final_loss, b.final_loss],
            "test_accuracy": [a.test_accuracy, b.test_accuracy],
            "weights": max(distance(w, b.weights[name]) for name, w in a.weights.items()),
        },
    )


def check_shapes(a: Trajectory, b: Trajectory) -> None:
    """Raise `UserError` if a tensor that both trajectories have differs in shape; others are
    ignored."""
    for key in a.tensors.keys() & b.tensors.keys():
        one, other = a.tensors[key].shape, b.tensors[key].shape
        if one != other:
            raise UserError(f"trace: {key} has shape {one} on {a.backend}, {other} on {b.backend}")


def measure_distances(
    a: Trajectory, b: Trajectory, drawn: list[Envelope], lower: LowPrecision | None = None
) -> Iterator[Distance]:
    """Yield every distance in execution order: by step, by phase, along the layers.

    The loss is compared at every step, batches and tensors at steps that both traced. At step 1
    every backend has the same weights, so the envelope is that of step 1. Later it is the largest
    up to `EARLIER_FACTOR` times that step (excluding chaotic steps), because a pair of backends may
    hit a non-differentiable point earlier than the draws did.

    Args:
        drawn: the envelopes; steps beyond the shortest of them are left out.
    """
    steps = sorted(set(a.data) & set(b.data))
    horizon = min([len(a.losses), len(b.losses)] + [len(e.loss) for e in drawn])
    gap = elementwise_distances(a.losses[:horizon], b.losses[:horizon])
    calm = (first_chaotic_step(a, b, drawn) or horizon + 1) - 1  # steps before the chaos
    loss_envelope = max_loss_envelope(drawn, horizon)
    width_at = max_envelope(drawn, calm)
    names: dict[tuple[int, str], list[str]] = defaultdict(list)
    for key in a.tensors:
        if key in b.tensors:
            phase, at, tensor = key.split("/", 2)
            names[int(at), phase].append(tensor)
    flow = list(a.weights)
    for step in range(1, horizon + 1):
        traced = step in steps
        for phase in PHASES:
            if phase == "data" and traced:
                yield Distance(step, "data", "batch", float(a.data[step] != b.data[step]), 0.0)
            elif phase == "loss":
                width = float(loss_envelope[min(envelope_horizon(step), max(calm, step)) - 1])
                yield Distance(step, "loss", "loss", float(gap[step - 1]), width)
            elif traced:
                if phase == "update":
                    yield from replica_divergence(step, a, b)
                floor = ROUNDOFF[lower.precision] if lower and phase in LOWER_PHASES else FLOOR
                for tensor in order_tensors(phase, names[step, phase], flow):
                    key = f"{phase}/{step:08d}/{tensor}"
                    if lower and phase == "forward" and tensor in lower.layers:
                        yield from dtype_violations(step, tensor, key, lower.precision, a, b)
                    far = distance(a.tensors[key], b.tensors[key])
                    yield Distance(
                        step, phase, tensor, far, width_at(phase, tensor, step), floor=floor
                    )


def dtype_violations(
    step: int, layer: str, key: str, precision: str, *sides: Trajectory
) -> Iterator[Distance]:
    """Yield a distance for each side whose layer output is not representable in the low-precision
    type it should have: how far rounding to that type moves it, with envelope 0.

    Args:
        key: key of the output in ``Trajectory.tensors``.
    """
    for side in sides:
        far = distance(side.tensors[key], round_to_type(side.tensors[key], precision))
        if far > 0:
            yield Distance(step, "forward", f"{layer} of {side.backend}", far, 0.0)


def replica_divergence(step: int, *sides: Trajectory) -> Iterator[Distance]:
    """Yield a distance, with envelope 0, for each rank whose weights differ from rank 0's by more
    than FLOOR although all should be copies; copies need no rounding."""
    for side in sides:
        for rank, far in enumerate(side.replica_divergence.get(step, [])):
            if far > FLOOR:
                yield Distance(step, "update", f"rank {rank} of {side.backend}", far, 0.0)


def output_layer(trajectory: Trajectory) -> str:
    """Return the name of the last layer with parameters."""
    return list(trajectory.weights)[-1].rpartition(".")[0]


def order_tensors(phase: str, tensors: list[str], flow: list[str]) -> list[str]:
    """Return gradients from the last layer back, and the tensors of other phases as given.

    Args:
        flow: names of all parameters, from the first layer to the last.
    """
    rank = {name: i for i, name in enumerate(flow)}
    if phase == "gradient":
        return sorted(tensors, key=lambda name: -rank.get(name, 0))
    return tensors


def first_divergence(
    outside: list[Distance], judged: list[Distance], margin: float
) -> FirstDivergence | None:
    """Return the first point outside the envelope, and as ``after`` the last step before it at
    which some tensor of its phase was still inside (0 if none).

    None if no point is outside.

    Args:
        outside, judged: the points outside, and all points, in execution order.
    """
    if not outside:
        return None
    first = outside[0]
    inside = [p.step for p in judged if p.phase == first.phase and p.ratio <= margin]
    after = max((step for step in inside if step < first.step), default=0)
    return FirstDivergence(
        first.step, first.phase, first.tensor, first.distance, first.envelope, after
    )


def loss_curve(points: list[Distance]) -> dict[str, list[float]]:
    """Return three lists over the steps: ``step``, ``loss`` (relative distance of the losses, not
    their values) and ``envelope``."""
    losses = [p for p in points if p.phase == "loss"]
    return {
        "step": [p.step for p in losses],
        "loss": [p.distance for p in losses],
        "envelope": [p.envelope for p in losses],
    }
