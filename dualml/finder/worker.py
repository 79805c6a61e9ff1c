"""One rank of a replay: ``python -m dualml.finder.worker FOLDER RANK``, as ``job.json`` asks."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from dualml.aggregation import NATIVE, REPLICAS
from dualml.experiment.plan import Plan
from dualml.launch.child import Emitter, serve
from dualml.machine import pin


def understood(plan: Plan, arm: str) -> Plan:
    """The plan as the referee can follow it: what a framework does by itself, done by all_reduce,
    and calls of remote procedures by messages; the numbers are those of the same rule."""
    told = plan.experiment.arms[arm]
    settings = told.aggregation
    if settings.strategy in (NATIVE, REPLICAS) or settings.overlap:
        update = {"strategy": "all_reduce", "overlap": False}
        told = told.model_copy(update={"aggregation": settings.model_copy(update=update)})
    splits = dict(plan.splits)
    if arm in splits and splits[arm].engine == "rpc":
        splits[arm] = dataclasses.replace(splits[arm], engine="messages")
    arms = {**plan.experiment.arms, arm: told}
    experiment = plan.experiment.model_copy(update={"arms": arms})
    return dataclasses.replace(plan, experiment=experiment, splits=splits)


def perform(emit: Emitter) -> dict[str, Any]:
    from dualml.backend import backends
    from dualml.experiment.saved import restore
    from dualml.runner.worker import join, samples_of

    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text("utf-8"))
    emit(phase="start")
    plan = restore(Path(job["run"]) / "plan")
    info = backends()[job["backend"]]
    if info.name == "numpy":
        plan = understood(plan, job["arm"])
    arm = plan.experiment.arms[job["arm"]]
    pin(rank, job["cores"])
    samples = samples_of(plan)
    size = arm.world_size
    if size == 1:
        work(plan, info.create(job["device"], job["threads"]), samples, folder, job, emit, None)
    elif info.ranks == "threads":
        from dualml.reference.communicator import run_threads

        def one(comm: Any) -> None:
            backend = info.create(job["device"], job["threads"])
            work(plan, backend, samples, folder, job, emit, comm)

        run_threads(size, one, plan.experiment.limits.collective)
    else:
        backend = info.create(job["device"], job["threads"])
        comm = join(folder, backend, rank, size, plan, job)
        emit.pulse(comm)
        work(plan, backend, samples, folder, job, emit, comm)
        comm.close()
    return {}


def work(
    plan: Plan,
    backend: Any,
    samples: Any,
    folder: Path,
    job: dict[str, Any],
    emit: Emitter,
    comm: Any,
) -> None:
    """One rank's part of the replay."""
    from dualml.finder.replay import replay
    from dualml.runner.trial import Trial

    def beat() -> None:
        emit(phase="replay")

    made = Trial(plan, job["arm"], job["seed"], backend, samples, folder, emit, comm=comm)
    replay(made, job, folder, beat)


if __name__ == "__main__":
    serve(perform)
