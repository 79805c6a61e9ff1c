"""Compute all verdicts of a run folder, which are written to ``parity.json``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.precision import SLOT, low_precision_layers
from dualml.common.json_types import JsonObject
from dualml.experiment.arm import Arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.exactness import baseline_of, inexactness_reason
from dualml.experiment.schema import Experiment
from dualml.experiment.store.agreement import is_divergence_reason
from dualml.experiment.store.manifest import Key, RunRecord, TrialRecord, read_run
from dualml.experiment.store.plan import PLAN, plan_folder, restore_plan
from dualml.experiment.store.trajectory import Trajectory, read_trajectory
from dualml.experiment.store.trial import trial_folder
from dualml.experiment.store.verdicts import (
    PARITY,
    VERDICTS,
    ComparisonContent,
    JudgedContent,
    ParityContent,
    SerialContent,
    make_serial,
)
from dualml.parity.low_precision_methods import compare_low_precision_methods
from dualml.parity.pairs import FLOOR, LowPrecision, compare_trajectories
from dualml.parity.statistics import MIN_SEEDS, check_equivalence


def judge_run(
    folder: Path, only: tuple[str, int] | None = None, verify: bool = True
) -> ParityContent:
    """Compare every pair of backends for every arm and seed, and return the content of
    ``parity.json``.

    Nothing is written, see `write_parity`. Arms that do not train are skipped, and failed trials
    are not comparable. Within each backend, arms with several ranks are also compared with the
    single-rank arm that does the same.

    Args:
        only: restrict to one arm and seed.
        verify: whether to check the plan against the hash in ``run.json``.

    Raises:
        PlanChanged: the plan was changed (only with ``verify``).
        UserError: not a run folder.
    """
    run, plan = read_run(folder), PLAN.read(plan_folder(folder))
    if verify:
        restore_plan(plan_folder(folder), run.plan_hash)
    experiment, trials = run.to_experiment(folder), run.by_key()
    specs = {"": plan.model, **plan.models}
    shapes = {name: spec.tensors() for name, spec in specs.items()}
    comparisons = list[ComparisonContent]()
    kept = dict[tuple[str, int], dict[str, Trajectory]]()
    backends = list(dict.fromkeys(trial.backend for trial in run.trials))
    # The frameworks before the reference, so that pairs read torch–mindspore, torch–numpy, …
    pairs = list(combinations(sorted(backends, key=lambda name: name == "numpy"), 2))
    for arm, set_up in experiment.arms.items():
        if set_up.kind != "train":
            continue
        for seed in experiment.seeds_of(arm):
            if only not in (None, (arm, seed)):
                continue
            model = set_up.variant if set_up.variant in shapes else ""
            ran = {b: trials[arm, b, seed] for b in backends if (arm, b, seed) in trials}
            read = {
                b: read_trajectory(trial_folder(folder, t.key), b, shapes[model])
                for b, t in ran.items()
                if t.status == "ok"
            }
            kept[arm, seed] = read
            lower = low_precision_of(set_up, specs)
            by_chance = set_up.aggregation.arrival == "free"  # not reproducible
            for a, b in pairs:
                if {a, b} - set(experiment.backends_of(arm, backends)):
                    continue
                judged = compare_pair(
                    ran, read, a, b, experiment.parity.margin, lower, free=by_chance
                )
                comparisons.append({"arm": arm, "seed": seed, "a": a, "b": b, **judged})
    resolve_by_seeds(comparisons, trials)
    own = compare_low_precision_methods(experiment, kept)
    several = any(
        a.kind == "train"
        and any(
            (
                a.world_size > 1,
                a.method,
                a.plan_precision.is_low,
                a.recompute != "none",
                a.offload,
                a.split,
            )
        )
        for a in experiment.arms.values()
    )
    return {
        "format": PARITY.version,
        "settings": {
            "draws": experiment.parity.draws,
            "horizon": experiment.parity.horizon,
            "margin": experiment.parity.margin,
            "floor": FLOOR,
        },
        "comparisons": comparisons,
        **({"serial": compare_serial(run, experiment, kept, specs)} if several else {}),
        **({"lowered": own} if own else {}),
    }


def has_other_samples(a: TrialRecord, b: TrialRecord) -> bool:
    """Return whether two trials recorded that they trained on different samples, or in another
    order. A trial without a fingerprint of its samples counts as the same."""
    return len({t.samples_sha256 for t in (a, b) if t.samples_sha256}) > 1


def other_samples_verdict(a: TrialRecord, b: TrialRecord) -> JudgedContent:
    """Return the verdict for two trials that trained on different samples."""
    evidence = {"samples_sha256": [a.samples_sha256, b.samples_sha256]}
    return {"verdict": "not comparable", "reason": "other_samples", "evidence": evidence}


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


def has_other_skips(a: Trajectory, b: Trajectory) -> bool:
    """Return whether two trials with a scaled loss skipped different updates: whether their loss
    scalers differ at a step that both traced. False without a loss scaler.

    A gradient of the whole batch may overflow in the low-precision type where the gradients of
    parts, which ranks add in float32, do not.
    """
    scales = [key for key in a.tensors.keys() & b.tensors.keys() if f"/{SLOT}/" in key]
    return any(not np.array_equal(a.tensors[key], b.tensors[key]) for key in scales)


def compare_serial(
    run: RunRecord,
    experiment: Experiment,
    read: dict[tuple[str, int], dict[str, Trajectory]],
    specs: Mapping[str, ModelSpec],
) -> list[SerialContent]:
    """Compare arms with their baseline arm on the same backend, over the same global batches.

    These are n workers against one, and training methods and low precisions against the plain arm.
    Arms without a baseline are left out. Arms that compute something else by design get the verdict
    None, with the accuracies over all seeds as evidence.

    Args:
        read: (arm, seed) → backend → trajectory of a trial that succeeded.

    Returns:
        At most one judgement per arm, seed and backend; trials whose replicas diverged get one too.
    """
    judgements = list[SerialContent]()
    judged: JudgedContent
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
            judgements.append(make_serial(name, seed, backend, alone, REPLICAS_DIVERGED))
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
                judgements.append(
                    {
                        "arm": name,
                        "seed": seed,
                        "backend": backend,
                        "against": alone,
                        "verdict": None,
                        "reason": why,
                        "evidence": evidence,
                    }
                )
                continue
            if backend not in others or here is None or there is None:
                continue
            if arm.partition and has_other_samples(here, there):
                judged = other_samples_verdict(here, there)
            elif has_other_skips(trajectory, others[backend]):
                judged = {"verdict": "not comparable", "reason": "other_skips", "evidence": {}}
            else:
                envelopes = [t.envelope for t in (*own.values(), *others.values()) if t.envelope]
                margin, lower = experiment.parity.margin, low_precision_of(arm, specs)
                judged = compare_trajectories(others[backend], trajectory, margin, envelopes, lower)
            judgements.append(make_serial(name, seed, backend, alone, judged))
    return judgements


#: The verdict if the ranks of one side diverged with some seed; accuracies do not decide either.
REPLICAS_DIVERGED: JudgedContent = {
    "verdict": "not comparable",
    "reason": "trained_apart",
    "evidence": {},
}


def arms_trained_apart(trials: Mapping[Key, TrialRecord]) -> set[tuple[str, str]]:
    """Return the (arm, backend) pairs whose replicas diverged from each other with at least one
    seed."""
    return {(arm, b) for (arm, b, _), trial in trials.items() if is_divergence_reason(trial.reason)}


def write_parity(folder: Path, parity: ParityContent) -> None:
    """Write the verdicts to ``parity.json`` in the run folder, replacing those already there."""
    PARITY.write(folder, PARITY.make_record(dict(parity)))


def compare_pair(
    trials: dict[str, TrialRecord],
    read: dict[str, Trajectory],
    a: str,
    b: str,
    margin: float,
    lower: LowPrecision | None = None,
    *,
    free: bool = False,
) -> JudgedContent:
    """Compare two backends for one arm and seed.

    ``not comparable`` if a trial is missing or failed, if plans or samples differ, or with
    ``free``.

    Args:
        trials: records of all trials of the arm and seed, by backend.
        read: trajectories by backend, of trials that succeeded; all of their envelopes count.
        margin: a distance is outside when it exceeds ``margin`` × envelope.
        lower: the low-precision part of the arm; None if there is none.
        free: whether the server's order is nondeterministic, which rules out a comparison.
    """
    missing = [name for name in (a, b) if name not in read]
    if missing:
        statuses = {name: trials[name].status for name in missing if name in trials}
        if any(is_divergence_reason(trials[name].reason) for name in statuses):
            return REPLICAS_DIVERGED.copy()
        return {"verdict": "not comparable", "reason": "trial_missing", "evidence": statuses}
    if trials[a].plan_hash != trials[b].plan_hash:
        return {"verdict": "not comparable", "reason": "other_plan", "evidence": {}}
    if has_other_samples(trials[a], trials[b]):
        return other_samples_verdict(trials[a], trials[b])
    if free:
        return {"verdict": "not comparable", "reason": "free_order", "evidence": {}}
    envelopes = [t.envelope for t in read.values() if t.envelope]
    return compare_trajectories(read[a], read[b], margin, envelopes, lower)


#: Reasons for which two correct trajectories may differ.
LEGITIMATE = ("chaotic", "free_order")


def resolve_by_seeds(
    comparisons: list[ComparisonContent], trials: Mapping[Key, TrialRecord]
) -> None:
    """Decide trajectories that are chaotic or nondeterministic by their test accuracies over the
    seeds.

    Changes the verdicts and reasons in ``comparisons``. Nothing changes for an arm and pair of
    backends that is ``different`` with any seed (an observed difference is not a matter of
    statistics), whose replicas diverged, or that has too few seeds.
    """
    apart = arms_trained_apart(trials)
    pairs = {
        (c["arm"], c["a"], c["b"])
        for c in comparisons
        if c["reason"] in LEGITIMATE and not apart & {(c["arm"], c["a"]), (c["arm"], c["b"])}
    }
    for arm, a, b in pairs:
        all_seeds = [c for c in comparisons if (c["arm"], c["a"], c["b"]) == (arm, a, b)]
        if any(c["verdict"] == "different" for c in all_seeds):
            continue
        fair = [c for c in all_seeds if c["verdict"] == "equal" or c["reason"] in LEGITIMATE]
        evidence = equivalence_over_seeds(
            [(trials[arm, a, c["seed"]], trials[arm, b, c["seed"]]) for c in fair]
        )
        for c in (c for c in fair if c["reason"] in LEGITIMATE and evidence):
            c["evidence"].update(evidence)
            if evidence["equivalence"]["equivalent"]:
                c["verdict"], c["reason"] = "statistically equal", "equivalent_over_seeds"
            else:
                c["reason"] = "not_equivalent_over_seeds"


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


def worst_verdict(parity: ParityContent) -> str:
    """Return the worst verdict of all backend and baseline comparisons (``different``, then ``not
    comparable``); ``equal`` if nothing was compared. Verdicts of None, and those of methods in low
    precision, do not count."""
    verdicts = [c["verdict"] for c in (*parity["comparisons"], *parity.get("serial", ()))]
    return max((v for v in verdicts if v is not None), key=VERDICTS.index, default="equal")
