"""The finder: from a verdict `different` to the first divergence, the deviating backend, and the
cause."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from dualml.common.errors import TrialError, UserError
from dualml.common.json_types import JsonMapping, JsonObject
from dualml.experiment.store.records import read_records
from dualml.parity.finder.causes.base import Observation, phase_tensors
from dualml.parity.finder.context import PHASES, REFERENCE, ReplayContext
from dualml.parity.finder.host import ExperimentHost
from dualml.parity.finder.localise import (
    ReplayDistance,
    compare_tensors,
    execution_order,
    largest_differences,
    safe_distance,
)
from dualml.parity.finder.replays import ReplaySession, run_replays
from dualml.parity.finder.search import JudgingBudget, search
from dualml.parity.search_log import SearchLog

#: Maximum number of causes that are listed.
MAX_CAUSES = 3


def find_all(
    session: ReplaySession, parity: JsonMapping, limit: int = 3
) -> tuple[list[JsonObject], SearchLog]:
    """Find the causes of the comparisons that are `different` or had other samples, and of trials
    that ended with bad numbers; at most ``limit`` findings, and the log of their searches.

    A backend that is found to deviate is not examined again for its arm and seed. A comparison of n
    ranks with one is examined only if the backends agree with each other. What cannot be replayed
    is listed with the status ``not replayed`` and the reason.

    Args:
        parity: the verdicts of the run, as in ``parity.json``.
    """
    wanted = [c for c in parity.get("comparisons", []) if is_suspicious(c)]
    wanted += numeric_failures(session, parity)
    seen = {(c["arm"], c["seed"], b) for c in wanted for b in (c["a"], c["b"])}
    for one in parity.get("serial", []):
        if is_suspicious(one) and (one["arm"], one["seed"], one["backend"]) not in seen:
            wanted.append({**one, "a": one["backend"], "b": REFERENCE})
    results, log = list[JsonObject](), SearchLog()
    blamed: set[tuple[str, int, str]] = set()
    for c in wanted:
        if len(results) >= limit:
            break
        if blamed & {(c["arm"], c["seed"], side) for side in (c["a"], c["b"])}:
            continue  # the same backend in another pair
        finding: JsonObject = {"arm": c["arm"], "seed": c["seed"], "a": c["a"], "b": c["b"]}
        try:
            content, searched = find_cause(session, c)
            finding |= content
            log.exchanges += searched.exchanges
        except (UserError, TrialError) as error:
            finding |= {"status": "not replayed", "reason": str(error)}
        results.append(finding)
        blamed.add((c["arm"], c["seed"], finding.get("backend", "")))
    return results, log


#: Parts of the reasons of numerical failures (`dualml.runner.worker.guards`).
NUMBERS = ("the loss is ", "the loss diverges", "not finite", "moved no parameter", "does not hold")


def numeric_failures(session: ReplaySession, parity: JsonMapping) -> list[JsonObject]:
    """Return the comparisons that lack one side because its numbers ended the trial, while the
    other side finished; the update that failed is added as first divergence."""
    trials, suspects = session.folder.trials, list[JsonObject]()
    for c in parity.get("comparisons", []):
        lost = [name for name in (c["a"], c["b"]) if c.get("evidence", {}).get(name) == "failed"]
        if c.get("reason") != "trial_missing" or len(c["evidence"]) != 1 or len(lost) != 1:
            continue
        trial = trials[c["arm"], lost[0], c["seed"]]
        if any(part in (trial.reason or "") for part in NUMBERS):
            step = count_losses(session.folder.trial_folder(trial.key)) + 1
            suspects.append({**c, "first_divergence": {"step": step}})
    return suspects


def count_losses(folder: Path) -> int:
    """Return how many losses a trial recorded before it ended; 0 if none can be read."""
    try:
        losses = read_records(folder).get("loss")
    except UserError:
        return 0
    return 0 if losses is None else len(losses.step)


def is_suspicious(comparison: JsonMapping) -> bool:
    """Return whether a comparison needs an explanation: its verdict is ``different``, or its reason
    ``other_samples``."""
    return comparison["verdict"] == "different" or comparison.get("reason") == "other_samples"


def find_cause(session: ReplaySession, comparison: JsonMapping) -> tuple[JsonObject, SearchLog]:
    """Replay a comparison, localise the difference and explain it, see `explain`.

    Raises:
        UserError, TrialError: the replay is not possible or failed; stateful arms and those in low
            precision are never replayed.
    """
    arm = session.plan.experiment.arms[comparison["arm"]]
    if session.plan.spec_of(arm).stateful:
        raise UserError(
            f"causes are looked for in single updates; arm {comparison['arm']} carries "
            "its state over them: see whether the same arm with recurrent.stateful = "
            "false differs, too"
        )
    precision = arm.precision
    if precision != "fp32":
        raise UserError(
            f"causes are looked for in float32; arm {comparison['arm']} computes in "
            f"{precision}: see whether the same arm with precision = fp32 differs, too"
        )
    sides = [name for name in (comparison["a"], comparison["b"]) if name != REFERENCE]
    with tempfile.TemporaryDirectory(prefix="dualml-find-") as folder:
        scene = run_replays(session, sides, comparison, Path(folder))
    return explain(scene, sides, session.plan.experiment.parity.margin)


def explain(
    scene: ReplayContext, sides: Sequence[str], margin: float
) -> tuple[JsonObject, SearchLog]:
    """Find where the replays first leave the update rule by more than ``margin`` × rounding, and
    search for the cause.

    Returns:
        The content of a finding, with the backend and up to three best hypotheses, and the log of
        the search: status ``found`` if the first explains every update, else ``localised``;
        ``rounding only``, with an empty log, if the replays do not leave the rule.
    """
    all_points = {name: list(compare_tensors(scene, name)) for name in sides}
    strays = {name: [p for p in own if p.ratio > margin] for name, own in all_points.items()}
    first = min((p for own in strays.values() for p in own), key=execution_order, default=None)
    if first is None:
        worst = max(
            (p for own in all_points.values() for p in own), key=lambda p: p.ratio, default=None
        )
        keys = ("backend", "step", "phase", "tensor", "ratio")
        unsearched: JsonObject = {
            "status": "rounding only",
            "steps": scene.steps,
            "margin": margin,
            "worst": None if worst is None else {key: getattr(worst, key) for key in keys},
        }
        return unsearched, SearchLog()
    off = strays[first.backend]
    guilty = [name for name, own in strays.items() if any(p.key == first.key for p in own)]
    host = ExperimentHost(
        Observation(
            scene, first.backend, first.phase, first.tensor, *violating_updates(scene, off, first)
        )
    )
    ranked, log = search(host, JudgingBudget(), host.evaluate)
    here = [p for p in off if (p.step, p.phase) == (first.step, first.phase)]
    held = {name: scene.sides[name].ranks[first.rank] for name in sides}
    ref = scene.expected(first.backend, first.rank, first.key)
    of_phase = phase_tensors(scene.reference.ranks[first.rank], first.step, first.phase)
    summing = first.phase == "aggregation"
    found: JsonObject = {
        "status": "found" if ranked and ranked[0].fits else "localised",
        "backend": first.backend,
        "guilty": guilty,
        "steps": scene.steps,
        "step": first.step,
        "first_steps": sorted({p.step for p in off if p.phase == first.phase}),
        "phase": first.phase,
        "tensor": first.tensor,
        "layer": layer_name(scene, first),
        "tensors": list(dict.fromkeys(p.tensor for p in here)),
        "of_tensors": len(of_phase),
        "ranks": sorted({p.rank for p in here}),
        "world_size": len(scene.reference.ranks),
        "owners": owner_ranks(scene, first),
        "collective": scene.arm.aggregation.strategy if summing else None,
        "distance": first.distance,
        "envelope": first.envelope,
        "margin": margin,
        "others": {
            name: safe_distance(arrays[first.key], ref)
            for name, arrays in held.items()
            if name != first.backend and first.key in arrays
        },
        "elements": largest_differences(held[first.backend][first.key], ref),
        "causes": [one.describe() for one in ranked[:MAX_CAUSES]],
    }
    return found, log


#: Pairs (update, rank).
StepRanks = list[tuple[int, int]]


def violating_updates(
    scene: ReplayContext, off: Sequence[ReplayDistance], first: ReplayDistance
) -> tuple[StepRanks, StepRanks]:
    """Return the (update, rank) pairs that deviate in the phase of the first deviation and not
    before it, and the pairs of the same ranks that deviate in neither.

    Args:
        off: all distances of the backend that are outside the margin.
        first: the first of them in execution order.
    """
    at = PHASES.index(first.phase)
    early = {(p.step, p.rank) for p in off if PHASES.index(p.phase) < at}
    out = {(p.step, p.rank) for p in off if p.phase == first.phase} - early
    every = {(step, rank) for step in scene.steps for rank in {rank for _, rank in out}}
    return sorted(out), sorted(every - out - early)


def layer_name(scene: ReplayContext, point: ReplayDistance) -> str | None:
    """Return the layer that the tensor belongs to; None if it is not of a layer."""
    name = point.tensor.rpartition("/")[2]
    layers = dict(scene.recipe.spec.layers)
    return next((n for n in (name, name.rpartition(".")[0]) if n in layers), None)


def owner_ranks(scene: ReplayContext, point: ReplayDistance) -> list[int] | None:
    """Return the ranks that hold the tensor's layer in a split model; None for other models, and
    for a tensor that is not of a layer."""
    split, layer = scene.plan.splits.get(scene.arm_name), layer_name(scene, point)
    if split is None or layer is None:
        return None
    return [
        r
        for r in range(split.world_size)
        if any(layer in split.stages[s] for s in split.stages_on(r))
    ]
