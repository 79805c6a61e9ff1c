"""One rank of a replay: ``python -m dualml.worker.replay_main FOLDER RANK``, see ``job.json``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.aggregation import NATIVE, REPLICAS
from dualml.experiment.plan import Plan
from dualml.launch.child import Emitter, serve
from dualml.machine import pin

if TYPE_CHECKING:
    from dualml.store.replays import ReplayJob


def for_referee(plan: Plan, name: str) -> Plan:
    """The plan with an arm as the referee can follow it: what a framework does by itself is done by
    all_reduce, and remote procedure calls by messages; the numbers are those of the same rule."""
    arm = plan.experiment.arms[name]
    settings = arm.aggregation
    if settings.strategy in (NATIVE, REPLICAS) or settings.overlap:
        update = {"strategy": "all_reduce", "overlap": False}
        arm = arm.model_copy(update={"aggregation": settings.model_copy(update=update)})
    splits = dict(plan.splits)
    if name in splits and splits[name].engine == "rpc":
        splits[name] = dataclasses.replace(splits[name], engine="messages")
    experiment = plan.experiment.model_copy(update={"arms": {**plan.experiment.arms, name: arm}})
    return dataclasses.replace(plan, experiment=experiment, splits=splits)


def perform(emit: Emitter) -> dict[str, Any]:
    from dualml.backend import backends
    from dualml.experiment.samples import samples_of
    from dualml.store.plan import plan_folder, restore
    from dualml.store.replays import REPLAY_JOB
    from dualml.worker.main import join

    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = REPLAY_JOB.read(folder)
    emit(phase="start")
    plan = restore(plan_folder(Path(job.run)))
    info = backends()[job.backend]
    if job.leads:
        plan = for_referee(plan, job.arm)
    arm = plan.experiment.arms[job.arm]
    pin(rank, job.cores)
    samples = samples_of(plan)
    size = arm.world_size
    if size == 1:
        work(plan, info.create(job.device, job.threads), samples, folder, job, emit, None)
    elif info.ranks == "threads":
        from dualml.reference.communicator import run_threads

        def one(comm: Any) -> None:
            backend = info.create(job.device, job.threads)
            work(plan, backend, samples, folder, job, emit, comm)

        run_threads(size, one, plan.experiment.limits.collective)
    else:
        backend = info.create(job.device, job.threads)
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
    job: ReplayJob,
    emit: Emitter,
    comm: Any,
) -> None:
    """One rank's part of the replay."""
    from dualml.worker.replay import replay
    from dualml.worker.setup import Setup

    def beat() -> None:
        emit(phase="replay")

    trial = Setup(plan, job.arm, job.seed, backend, samples, folder, emit, comm=comm)
    replay(trial, job.backend, job.steps, job.leads, folder.parent, beat)


if __name__ == "__main__":
    serve(perform)
