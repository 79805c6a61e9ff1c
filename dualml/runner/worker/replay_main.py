"""One rank of a replay: ``python -m dualml.runner.worker.replay_main RANK FOLDER``, see
``job.json``."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.experiment.plan import Plan
from dualml.launch.child import Emitter, report_to_owner
from dualml.parallel.aggregation import NATIVE, REPLICAS, STRATEGIES
from dualml.runner.worker.join import run_as_rank


def reference_plan(plan: Plan, name: str) -> Plan:
    """Return the plan with the arm ``name`` changed to what the reference backend supports.

    A framework's native data parallelism becomes all_reduce, and remote procedure calls become
    messages; both follow the same update rule. Every exact strategy becomes all_reduce as well, so
    that an error in a strategy does not affect the reference.
    """
    arm = plan.experiment.arms[name]
    settings = arm.aggregation
    exact = settings.strategy in STRATEGIES and STRATEGIES[settings.strategy].exact
    if settings.strategy in (NATIVE, REPLICAS) or settings.overlap or exact:
        update = {"strategy": "all_reduce", "overlap": False}
        arm = arm.model_copy(update={"aggregation": settings.model_copy(update=update)})
    splits = dict(plan.splits)
    if name in splits and splits[name].engine == "rpc":
        splits[name] = dataclasses.replace(splits[name], engine="messages")
    experiment = plan.experiment.model_copy(update={"arms": {**plan.experiment.arms, name: arm}})
    return dataclasses.replace(plan, experiment=experiment, splits=splits)


def run_replay(emit: Emitter) -> JsonObject:
    """Run the replay that ``job.json`` describes, as one rank, and return an empty dict: the
    tensors are in files. Rank and folder are the first two arguments of the command line."""
    from dualml.experiment.samples import load_samples
    from dualml.experiment.store.plan import plan_folder, restore_plan
    from dualml.experiment.store.replays import REPLAY_JOB
    from dualml.runner.worker.replay import replay_updates
    from dualml.runner.worker.setup import RankResources, TrialSetup

    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    job = REPLAY_JOB.read(folder)
    emit(phase="start")
    plan = restore_plan(plan_folder(Path(job.run)))
    if job.leads:
        plan = reference_plan(plan, job.arm)
    samples = load_samples(plan)

    def work(backend: Any, comm: Any) -> None:
        resources = RankResources(backend, samples, comm)
        trial = TrialSetup(plan, job.arm, job.seed, resources, folder, emit)
        beat = functools.partial(emit, phase="replay")
        replay_updates(trial, job.backend, job.steps, job.leads, folder.parent, beat)

    run_as_rank(rank, plan, job, folder, emit, work)
    return {}


if __name__ == "__main__":
    with report_to_owner() as emit:
        emit.result = run_replay(emit)
