"""What a run measured of communication, held against the α–β model: ``cost.json``.

Written after the trials; `dualml simulate --fit` reads the fits beside it, one file a backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.aggregation.exact import alike
from dualml.aggregation.slow import Slow
from dualml.aggregation.times import read_times, split
from dualml.cost import Fits, Point, Topology, fit_all, predict
from dualml.errors import UserError
from dualml.experiment.plan import Plan
from dualml.experiment.schema import Arm
from dualml.files import read_json, readable, write_json
from dualml.machine import recorded_cores
from dualml.runner.collectives import NAME
from dualml.runner.folder import RunFolder

FORMAT = 1
FILE = "cost.json"
#: Keys of an arm that make it another one than its base, the same arm without a slow node.
SAME = ("optimizer", "schedule", "batch_size", "samples", "world_size", "aggregation")


def write_costs(folder: RunFolder, plan: Plan) -> dict[str, Any] | None:
    """Fits, predictions for other numbers of ranks, and slowdowns; None where nothing was timed."""
    measured = measurements(folder)
    if not measured:
        return None
    topology = Topology("shared", cores(folder.run))
    fits: dict[tuple[str, int], Fits] = {}
    for (backend, n), rows in measured.items():
        points = [
            Point.of(r["strategy"], n, r["bytes"], r["seconds"], topology)
            for r in rows
            if r["seconds"] > 0
        ]
        fits[backend, n] = fit_all(points, topology)
        write_json(folder.path / f"cost.{backend}-n{n}.json", fits[backend, n].describe())
    told = {
        "format": FORMAT,
        "topology": str(topology),
        "fits": [
            {"backend": backend, "world_size": n, "strategy": name, "fit": one.describe()}
            for (backend, n), found in fits.items()
            for name, one in [(None, found.point_to_point), *found.strategies.items()]
            if one is not None
        ],
        "checks": checks(measured, fits, topology),
        "slowdowns": slowdowns(folder, plan, fits, topology),
    }
    write_json(folder.path / FILE, told)
    return told


def measurements(folder: RunFolder) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(backend, ranks) → rows of its micro-benchmarks."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for trial in folder.run["trials"]:
        path = folder.trial_folder(trial) / NAME
        if trial["status"] == "ok" and path.is_file():
            with readable(f"{path}: not readable"):
                told = read_json(path)
                found.setdefault((told["backend"], told["world_size"]), []).extend(told["rows"])
    return found


def cores(run: Mapping[str, Any]) -> int:
    """Cores that the ranks shared, as the backends recorded them."""
    return max((recorded_cores(e) or 1 for e in run["environment"].values()), default=1)


def checks(
    measured: Mapping[tuple[str, int], list[dict[str, Any]]],
    fits: Mapping[tuple[str, int], Fits],
    topology: Topology,
) -> list[dict[str, Any]]:
    """Every measurement against the prediction from the fewest ranks of its backend."""
    found = []
    for (backend, n), rows in measured.items():
        least = min(size for name, size in measured if name == backend)
        if n == least:
            continue
        for row in rows:
            try:
                link = fits[backend, least].link(row["strategy"])
            except UserError:
                continue
            told = predict(row["strategy"], n, row["bytes"], link, topology=topology, width=4)
            found.append(
                {
                    "backend": backend,
                    "world_size": n,
                    "from_world_size": least,
                    "strategy": row["strategy"],
                    "bytes": row["bytes"],
                    "measured_s": row["seconds"],
                    "predicted_s": told.seconds,
                }
            )
    return found


@dataclass(frozen=True)
class Pace:
    """Mean seconds of an update and of its computation, over the ranks."""

    step: float
    compute: float


def pace(folder: RunFolder, trial: dict[str, Any], n: int, since: int = 1) -> Pace | None:
    """From the times its ranks left, of the updates from ``since`` on."""
    where = folder.trial_folder(trial)
    try:
        times = [read_times(where / f"rank{rank}.times.npz") for rank in range(n)]
    except UserError:
        return None
    told = split([{part: t[since - 1 :] for part, t in rank.items()} for rank in times])
    if not told:
        return None
    compute = sorted(t["compute_s"] for t in told)[len(told) // 2]  # the slow rank is no measure
    return Pace(sum(t["step_s"] for t in told) / n, compute)


def slowdowns(
    folder: RunFolder,
    plan: Plan,
    fits: Mapping[tuple[str, int], Fits],
    topology: Topology,
) -> list[dict[str, Any]]:
    """Arms with a slow node against the same arm without: measured and predicted."""
    arms = plan.experiment.arms
    nbytes = plan.spec.nbytes()
    trials = {(t["arm"], t["backend"], t["seed"]): t for t in folder.run["trials"]}
    found = []
    for (name, backend, seed), trial in trials.items():
        arm = arms[name]
        base = base_of(name, arms)
        if arm.slow is None or base is None or trial["status"] != "ok":
            continue
        other = trials.get((base, backend, seed))
        n, since = arm.world_size, arm.slow.since
        mine = pace(folder, trial, n, since)
        plain = None if other is None else pace(folder, other, n)
        if mine is None or plain is None:
            continue
        told = {"backend": backend, "seed": seed, "arm": name, "base": base}
        predicted = predicted_slowdown(arm, plain, nbytes, fits.get((backend, n)), topology)
        found.append({**told, "measured": mine.step / plain.step, "predicted": predicted})
    return found


def base_of(name: str, arms: dict[str, Arm]) -> str | None:
    """The arm that does the same without a slow node, best for as many updates."""
    plain = [other for other in alike(name, arms, SAME) if arms[other].slow is None]
    return min(plain, key=lambda o: arms[o].updates != arms[name].updates, default=None)


def predicted_slowdown(
    arm: Arm, plain: Pace, nbytes: int, fits: Fits | None, topology: Topology
) -> float | None:
    """Time of an update with the slow node over that without, both from the model."""
    assert arm.slow is not None
    n, settings = arm.world_size, arm.aggregation
    name = settings.strategy
    if settings.every > 1:
        name = "local_sgd"
    if fits is None:
        return None
    try:
        link = fits.link(name)
    except UserError:
        return None
    alone = plain.compute / topology.slowdown(n)  # measured with all ranks at work
    slow = Slow(**arm.slow.model_dump())
    options: dict[str, Any] = {"topology": topology, "width": 4, "every": settings.every}
    with_it = predict(name, n, nbytes, link, alone, slow=slow, **options).seconds
    without = predict(name, n, nbytes, link, alone, **options).seconds
    return with_it / without if without else None
