"""What a trial does differently when its ranks share a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dualml.aggregation.slow import Slow
from dualml.backend import Backend, Training
from dualml.communicator import Communicator
from dualml.experiment.deals import Feed
from dualml.experiment.schema import Arm
from dualml.machine import peak_memory_mb
from dualml.runner.ranks import Several
from dualml.split.asynchronous import executor_class
from dualml.split.executor import Executor
from dualml.split.horizontal import Segment
from dualml.split.training import SplitTraining

if TYPE_CHECKING:
    from dualml.runner.trial import Trial

#: What every rank tells of itself, in this order.
TOLD = ("live", "held_bytes", "parameter_bytes", "peak_memory_mb")


def split_training(trial: Trial, comm: Communicator) -> Training:
    """This rank's part of the trial's model."""
    plan, arm, samples = trial.plan.splits[trial.arm_name], trial.arm, trial.samples
    if plan.engine == "rpc":
        return trial.backend.rpc(
            plan,
            comm,
            rule=trial.rule,
            schedule=arm.plan_schedule,
            loss=trial.plan.experiment.loss,
            x=samples.train_x,
            y=samples.train_y,
            updates=trial.schedule.updates,
            seed=trial.seed,
        )
    views = plan.views(comm.rank)[0]
    segments = [item for view in views for item in view.items if isinstance(item, Segment)]
    stage = trial.backend.stage(
        segments,
        first=views[0].stage == 0,
        last=views[-1].stage == len(plan.stages) - 1,
        rule=trial.rule,
        schedule=arm.plan_schedule,
        loss=trial.plan.experiment.loss,
        x=samples.train_x,
        y=samples.train_y,
        updates=trial.schedule.updates,
    )
    assert arm.split is not None
    executor = executor_class(arm.split.arrival)(plan, comm, stage)
    made = SplitTraining(
        trial.backend, plan, comm, stage, samples.train_x, samples.train_y, executor
    )
    return cast(Training, made)


class SplitRanks(Several):
    """Ranks that share the model: each has its part, and the whole batch goes through all."""

    training: Any

    def __init__(
        self,
        backend: Backend,
        training: Training,
        folder: Path,
        feed: Feed,
        comm: Communicator,
        arm: Arm,
        seed: int,
    ) -> None:
        super().__init__(backend, training, folder, feed, comm)
        self.executor: Executor = self.training.executor
        self.executor.seed = seed
        self.executor.slow = None if arm.slow is None else Slow(**arm.slow.model_dump())
        self.told: dict[str, Any] = {}

    def warm_up(self, chunk: int) -> list[tuple[Any, int]]:
        """Batches of every size that comes; what they keep for backward passes is counted."""
        self.training.stage.measuring = True
        self.executor.live = self.executor.held = 0
        return [(self.feed.batch(step), 1) for step in self.feed.typical(together=True)]

    def begin_training(self) -> None:
        executor, held = self.executor, self.executor.plan.views(self.rank)[1].values()
        self.training.stage.measuring = False
        own = sum(math.prod(p.local) for p in held) * np.dtype(self.backend.dtype).itemsize
        mine = np.array([executor.live, executor.held, own, peak_memory_mb() or 0.0])
        found = [self.comm.numpy(x) for x in self.comm.all_gather(self.comm.tensor(mine))]
        self.told = {"memory": [dict(zip(TOLD, row.tolist(), strict=True)) for row in found]}
        executor.timeline.clear()
        self.comm.barrier()

    def read(self, lazy: Any) -> Any:
        return self.training.read(lazy)

    def finish(self) -> None:
        self.executor.timeline.write(self.folder / f"rank{self.rank}.timeline.npz")

    def begin_draws(self) -> None:
        self.executor.slow = None  # sleeping changes no number
        self.comm.barrier()

    def summary(self) -> dict[str, Any]:
        plan = self.executor.plan
        if plan.engine == "rpc":
            how = {"calls": f"native: {self.training.detail}"}
            return {"world_size": self.size, "how": how, **self.told}
        uses = ["isend and irecv"] if len(plan.stages) > 1 else []
        how = {name: str(self.comm.how("exchange")) for name in uses}
        if plan.mesh.tensor > 1 or plan.same_parameters():
            how["all_reduce"] = str(self.comm.how("all_reduce"))
        return {"world_size": self.size, "how": how, **self.told}
