"""Compare the communication that a run measured with the α–β model, and write ``cost.json``.

It is written after the trials; `dualml simulate --fit` reads the fits beside it, one file per
backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.common.errors import UserError
from dualml.common.machine import recorded_cores
from dualml.experiment.arm import Arm
from dualml.experiment.config_diff import ConfigDiff
from dualml.experiment.plan import Plan
from dualml.experiment.store.costs import COLLECTIVES, COST, CollectiveRow, CostRecord, write_fits
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import Key, RunRecord
from dualml.experiment.store.times import TIMES
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.aggregation.times import split_times
from dualml.planning.cost import Fits, Point, Topology, fit_all, predict

#: (backend, number of ranks) → rows of its micro-benchmarks.
Measured = Mapping[tuple[str, int], Sequence[CollectiveRow]]


def write_costs(folder: RunFolder, plan: Plan) -> CostRecord | None:
    """Fit the α–β model to the collectives that the run's trials have timed. Write the fits, their
    predictions for other numbers of ranks, and slowdowns by stragglers to ``cost.json``, the fits
    also to one file per backend and number of ranks for `dualml simulate`, and return the record.

    Return None, and write nothing, where no collective was timed, or where some ranks shared a
    machine and others did not.
    """
    measured, place = measurements(folder), locate_ranks(folder)
    if not measured or place is None:
        return None
    topology, engines = place
    fits: dict[tuple[str, int], Fits] = {}
    for (backend, n), rows in measured.items():
        points = [
            Point.from_measurement(
                row.strategy, n, row.bytes, row.seconds, topology, engine=engines.get(backend, "")
            )
            for row in rows
            if row.seconds > 0
        ]
        fits[backend, n] = fit_all(points, topology, engines.get(backend, ""))
        write_fits(folder.path, backend, n, fits[backend, n].describe())
    content = {
        "topology": str(topology),
        "fits": [
            {"backend": backend, "world_size": n, "strategy": name, "fit": one.describe()}
            for (backend, n), fitted in fits.items()
            for name, one in [(None, fitted.point_to_point), *fitted.strategies.items()]
            if one is not None
        ],
        "checks": prediction_checks(measured, fits, topology),
        "slowdowns": slowdowns(folder, plan, fits, topology),
    }
    record = COST.make_record(content)
    COST.write(folder.path, record)
    return record


def measurements(folder: RunFolder) -> Measured:
    """Return the rows of the micro-benchmarks of collectives, of all trials that ended
    successfully, by (backend, number of ranks); empty if there are none."""
    measured: dict[tuple[str, int], list[CollectiveRow]] = {}
    for trial in folder.trials.values():
        record = COLLECTIVES.read_if_present(folder.trial_folder(trial.key))
        if trial.status == "ok" and record is not None:
            measured.setdefault((record.backend, record.world_size), []).extend(record.rows)
    return measured


def locate_ranks(folder: RunFolder) -> tuple[Topology, dict[str, str]] | None:
    """Return the topology of the ranks that ran micro-benchmarks: ``Topology()`` where each was on
    a machine of its own, with a dict backend → communication engine, or a shared topology where all
    used the cores of one machine, with an empty dict.

    None for a mixture of both, which no single link describes, and without a successful benchmark.
    """
    machines, engines = set[int | None](), dict[str, str]()
    for trial in folder.trials.values():
        record = COLLECTIVES.read_if_present(folder.trial_folder(trial.key))
        if trial.status == "ok" and record is not None:
            machines.add(record.per_machine)
            engines[record.backend] = record.engine
    if machines == {1}:
        return Topology(), engines
    return (Topology("shared", shared_cores(folder.run)), {}) if machines == {None} else None


def shared_cores(run: RunRecord) -> int:
    """Return the number of cores that the ranks shared, the largest that a backend recorded; 1 if
    none did."""
    return max((recorded_cores(e) or 1 for e in run.environment.values()), default=1)


def prediction_checks(
    measured: Measured, fits: Mapping[tuple[str, int], Fits], topology: Topology
) -> list[dict[str, Any]]:
    """Compare every measurement with the prediction from the backend's measurements with fewest
    ranks; these themselves are left out, and strategies that have no fit there.

    Each row has ``backend``, ``world_size``, ``from_world_size`` (the fewest), ``strategy``,
    ``bytes``, and the seconds of one collective, ``measured_s`` and ``predicted_s``."""
    compared = []
    for (backend, n), rows in measured.items():
        least = min(size for name, size in measured if name == backend)
        if n == least:
            continue
        for row in rows:
            try:
                link = fits[backend, least].link(row.strategy)
            except UserError:
                continue
            predicted = predict(
                row.strategy,
                n,
                row.bytes,
                link,
                topology=topology,
                width=4,
                engine=fits[backend, least].engine,
            )
            compared.append(
                {
                    "backend": backend,
                    "world_size": n,
                    "from_world_size": least,
                    "strategy": row.strategy,
                    "bytes": row.bytes,
                    "measured_s": row.seconds,
                    "predicted_s": predicted.seconds,
                }
            )
    return compared


@dataclass(frozen=True)
class MeanStepTime:
    """Seconds per update of a trial: ``step``, the mean over the ranks, and ``compute``, the
    computation of the median rank."""

    step: float
    compute: float


def mean_step_time(folder: RunFolder, key: Key, n: int, since: int = 1) -> MeanStepTime | None:
    """Compute the step time of a trial from the times that its ``n`` ranks recorded, from update
    ``since`` (from 1) on; None if those of a rank are missing or damaged, or there are no such
    updates."""
    try:
        times = TIMES.read_all(folder.trial_folder(key), n)
    except UserError:
        return None
    ranks = split_times([{part: t[since - 1 :] for part, t in rank.items()} for rank in times])
    if not ranks:
        return None
    compute = sorted(t["compute_s"] for t in ranks)[len(ranks) // 2]  # robust to the straggler
    return MeanStepTime(sum(t["step_s"] for t in ranks) / n, compute)


def slowdowns(
    folder: RunFolder, plan: Plan, fits: Mapping[tuple[str, int], Fits], topology: Topology
) -> list[dict[str, Any]]:
    """Return a row for every successful trial with a straggler whose partner, the trial without
    one, has recorded times as well.

    Each has ``backend``, ``seed``, ``arm``, ``base`` (the partner's arm), ``measured``, the mean
    step time since the straggler is slow divided by that of the partner, and ``predicted``, the
    same ratio by the α–β model (None without a fit).
    """
    arms = plan.experiment.arms
    contrast = ConfigDiff(arms)
    nbytes = plan.spec.nbytes()
    rows = []
    for (name, backend, seed), trial in folder.trials.items():
        arm = arms[name]
        base = contrast.arm_without_straggler(name)
        if arm.slow is None or base is None or trial.status != "ok":
            continue
        n, other = arm.world_size, (base, backend, seed)
        slow = mean_step_time(folder, trial.key, n, arm.slow.since)
        plain = mean_step_time(folder, other, n) if other in folder.trials else None
        if slow is None or plain is None:
            continue
        predicted = predicted_slowdown(arm, plain, nbytes, fits.get((backend, n)), topology)
        row = {"backend": backend, "seed": seed, "arm": name, "base": base}
        rows.append({**row, "measured": slow.step / plain.step, "predicted": predicted})
    return rows


def predicted_slowdown(
    arm: Arm, plain: MeanStepTime, nbytes: int, fits: Fits | None, topology: Topology
) -> float | None:
    """Predict the time of an update with the arm's straggler, divided by the time without it.

    Args:
        arm: with a straggler (`Arm.slow`).
        plain: measured step time of the same arm without the straggler.
        nbytes: bytes of the model's parameters.
        fits: of the backend with this number of ranks; None if there are none.
        topology: where the ranks are.

    Returns:
        The ratio; None where there is no fit for the strategy, and for ZeRO and unequal cuts of the
        vector, which the model lacks.
    """
    assert arm.slow is not None
    if arm.zero or arm.aggregation.cut != "equal":  # messages of its own
        return None
    n, settings = arm.world_size, arm.aggregation
    name = "local_sgd" if settings.every > 1 else settings.strategy
    try:
        link = None if fits is None else fits.link(name)
    except UserError:
        link = None
    if link is None:
        return None
    alone = plain.compute / topology.slowdown(n)  # measured with all ranks at work
    slow = Straggler(**arm.slow.model_dump())
    options: dict[str, Any] = {"topology": topology, "width": 4, "every": settings.every}
    options["engine"] = fits.engine if fits is not None else ""
    with_it = predict(name, n, nbytes, link, alone, slow=slow, **options).seconds
    without = predict(name, n, nbytes, link, alone, **options).seconds
    return with_it / without if without else None
