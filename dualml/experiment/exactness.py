"""Baselines of arms: when n workers must reproduce the trajectory of one, and why they need not."""

from __future__ import annotations

from dualml.algorithms.model.spec import ModelSpec
from dualml.experiment.arm import Arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.methods import METHODS
from dualml.parallel.aggregation import ASYNCHRONOUS, NATIVE, REPLICAS, strategy
from dualml.parallel.aggregation.coordinates import COORDINATEWISE

#: Settings that affect only the rounding of an update, not its arithmetic.
ROUNDING_ONLY_SETTINGS = (
    *("world_size", "aggregation", "split", "slow", "cores", "chunk"),
    *(
        "method",
        "method_config",
        "launcher",
        "backends",
        "zero",
        "zero_reduce",
        "recompute",
        "offload",
    ),
)


def inexactness_reason(arm: Arm, samples: int, spec: ModelSpec | None = None) -> str | None:
    """Return why an arm follows another rule than its `baseline_of`; None if it follows the same
    one, so that only rounding may distinguish them.

    Args:
        samples: number of samples of the arm's training set, which decides the sizes of its
            batches.
        spec: the arm's model.

    Returns:
        A key: ``asynchronous``, ``neighbours``, ``compressed``, ``max``, ``median``,
        ``local_updates``, ``local_state``, ``sum``, ``uneven``, ``precision``, ``batch_norm``.
    """
    if spec is not None and spec.buffers and arm.world_size > 1:
        return "batch_norm"  # each rank normalises by the statistics of its own part
    if any(m[arm.method].precision != "fp32" for m in METHODS.values() if arm.method in m):
        return "precision"
    if arm.zero_lower:
        return "precision"
    plain = arm.recompute == "none" and arm.offload is None
    if arm.world_size == 1 and arm.plan_precision.is_low and plain and arm.split is None:
        return "precision"
    s = arm.aggregation
    if arm.split is not None:
        return "asynchronous" if arm.split.arrival == "asynchronous" else None
    if s.strategy == ASYNCHRONOUS:
        return "asynchronous"
    if s.strategy not in (NATIVE, REPLICAS) and not strategy(s.strategy).exact:
        return "neighbours"
    if s.compress != "none":
        return "compressed"
    if s.reduce in COORDINATEWISE and arm.world_size > 1:
        return s.reduce
    if s.of == "parameters" and s.reduce != "sum":
        if s.every > 1:
            return "local_updates"
        rule = arm.optimizer
        if rule["name"] not in ("sgd", "gd") or rule.get("momentum"):
            return "local_state"  # each rank's optimizer remembers its own gradients
        if rule.get("weight_decay") and arm.partition:
            return "local_state"  # a rank whose epoch is over does not decay
    if s.reduce == "sum" and arm.world_size > 1:
        return "sum"
    if s.reduce == "mean" and arm.partition:
        return "uneven"  # ranks end their epochs at different times
    if s.reduce == "mean":
        size = arm.batch_size or samples
        if any(length % arm.world_size for length in {min(size, samples), samples % size}):
            return "uneven"  # a mean over ranks counts the samples of small parts more
    return None


def single_process_arm(name: str, contrast: ConfigDiff, precision: str | None = None) -> str | None:
    """Return the arm with one rank and without method and split that differs from this one only in
    `ROUNDING_ONLY_SETTINGS`, and in precision and loss scale if another ``precision`` is wanted;
    None if there is none.

    Of several, the first one without recomputation and offloading is preferred, else the first
    without recomputation.
    """

    def is_single_process(other: str) -> bool:
        decided = contrast.flat_configs[other]
        alone = decided["world_size"] == 1 and not decided["method"] and "split" in decided
        return alone and precision in (None, decided["precision"])

    def modification_key(arm: str) -> tuple[bool, bool]:
        decided = contrast.flat_configs[arm]
        return decided["recompute"] != "none", "offload" not in decided  # a table is flat

    vary = (*ROUNDING_ONLY_SETTINGS, *(("precision", "loss_scale") if precision else ()))
    arms = contrast.partners(name, vary=vary, where=is_single_process)
    return min(arms, key=modification_key, default=None)


def baseline_of(name: str, contrast: ConfigDiff) -> str | None:
    """Return the arm on the same backend with which the arm ``name`` is compared; None if there is
    no such arm.

    An arm with several ranks, a method or a split is compared with one that has none of them, one
    that offloads state or weights with one that does not, one that recomputes activations with one
    that keeps them, and one in low precision with the same in float32; the first of these that
    applies decides. Any other arm has no baseline.
    """
    own = contrast.flat_configs[name]
    if own["world_size"] != 1 or own["method"] or "split" not in own:  # a table is flat
        return single_process_arm(name, contrast)
    if "offload" not in own:
        return contrast.partner(
            name,
            vary=("offload", "aggregation"),
            where=lambda other: "offload" in contrast.flat_configs[other],
        )
    if own["recompute"] != "none":
        return contrast.partner(
            name,
            vary=("recompute",),
            where=lambda other: contrast.flat_configs[other]["recompute"] == "none",
        )
    if own["precision"] == "fp32":
        return None
    return contrast.partner(
        name,
        vary=("precision", "loss_scale"),
        where=lambda other: contrast.flat_configs[other]["precision"] == "fp32",
    )
