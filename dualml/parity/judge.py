"""Compute all verdicts of a run folder, which are written to ``parity.json``."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

from dualml.experiment.store.agreement import is_divergence_reason
from dualml.experiment.store.manifest import TrialRecord, read_run
from dualml.experiment.store.plan import PLAN, plan_folder, restore_plan
from dualml.experiment.store.trajectory import Trajectory, read_trajectory
from dualml.experiment.store.trial import trial_folder
from dualml.experiment.store.trial_comparison import RunVerdicts, TrialComparison
from dualml.experiment.store.verdicts import PARITY
from dualml.parity.low_precision_methods import compare_low_precision_methods
from dualml.parity.pairs import LowPrecision, compare_trajectories, low_precision_of
from dualml.parity.places import FLOOR
from dualml.parity.refusals import REPLICAS_DIVERGED, not_comparable, other_samples
from dualml.parity.serial import compare_serial
from dualml.parity.statistics import resolve_by_seeds


def judge_run(
    folder: Path, only: tuple[str, int] | None = None, verify: bool = True
) -> RunVerdicts:
    """Compare every pair of backends for every arm and seed, and return the verdicts.

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
    comparisons = list[TrialComparison]()
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
                comparisons.append(replace(judged, arms=(arm, arm), seed=seed, sides=(a, b)))
    lowered = compare_low_precision_methods(experiment, kept)
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
    return RunVerdicts(
        comparisons=tuple(resolve_by_seeds(comparisons, trials)),
        serial=tuple(compare_serial(run, experiment, kept, specs)) if several else None,
        lowered=tuple(lowered),
        settings={
            "draws": experiment.parity.draws,
            "horizon": experiment.parity.horizon,
            "margin": experiment.parity.margin,
            "floor": FLOOR,
        },
    )


def write_parity(folder: Path, verdicts: RunVerdicts) -> None:
    """Write the verdicts to ``parity.json`` in the run folder, replacing those already there."""
    PARITY.write(folder, PARITY.make_record(verdicts.describe()))


def compare_pair(
    trials: dict[str, TrialRecord],
    read: dict[str, Trajectory],
    a: str,
    b: str,
    margin: float,
    lower: LowPrecision | None = None,
    *,
    free: bool = False,
) -> TrialComparison:
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
            return REPLICAS_DIVERGED
        return not_comparable("trial_missing", statuses)
    if trials[a].plan_hash != trials[b].plan_hash:
        return not_comparable("other_plan")
    if (refused := other_samples(trials[a], trials[b])) is not None:
        return refused
    if free:
        return not_comparable("free_order")
    envelopes = [t.envelope for t in read.values() if t.envelope]
    return compare_trajectories(read[a], read[b], margin, envelopes, lower)
