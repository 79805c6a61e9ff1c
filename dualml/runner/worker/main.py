"""The worker process: one framework, one rank. ``python -m dualml.runner.worker.main RANK FOLDER
…``.

FOLDER is the folder of a trial. With several ranks there may be several folders, run one after the
other, so that the ranks start and find one another only once.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.json_types import JsonObject
from dualml.launch.child import Emitter, run_child
from dualml.runner.worker.join import agree_on_weights, run_as_rank

if TYPE_CHECKING:
    from dualml.experiment.store.trial import TrialJob


def run_trial_folders(
    folders: list[Path], rank: int, emit: Emitter, size: int | None = None
) -> dict[str, Any]:
    """Run the trials of these folders, and return the summary of the last one with its environment.

    A single rank that no external launcher started runs only the first folder.

    Args:
        folders: of the trials, all of one group of ranks.
        rank: of this process.
        emit: sends events to the owner.
        size: number of ranks that an external launcher has started, in place of the arm's.
    """
    from dualml.experiment.elastic import with_ranks
    from dualml.experiment.store.plan import plan_folder, restore_plan
    from dualml.experiment.store.trial import JOB, run_folder_of
    from dualml.runner.worker.remote import upload_outputs

    emit(phase="start")
    job = JOB.read(folders[0])
    plan = restore_plan(plan_folder(run_folder_of(folders[0])), job.plan_hash)
    for each in map(JOB.read, folders):
        if each.resized:
            plan = with_ranks(plan, each.arm, each.resized)
    runner = PlanRunner(plan, emit, rank)

    def work(backend: Any, comm: Any) -> JsonObject:
        if comm is None and size is None:
            return runner.run_trial(folders[0], backend, None)
        # With ranks as threads, this function runs on each of them.
        send = emit.send if comm is None or comm.rank == rank else lambda event: None
        summary: dict[str, Any] = {}
        for number, folder in enumerate(folders):
            send({"event": "trial", "number": number})
            summary = runner.run_trial(folder, backend, comm)
            if comm is not None:
                upload_outputs(folder)  # before rank 0 says that the trial has ended
                comm.barrier()
            send({"event": "settled", "number": number, **summary})
        return summary

    result: dict[str, Any] = run_as_rank(rank, plan, job, folders[0], emit, work, size)
    return result


class PlanRunner:
    """Runs trials of one plan, one after the other.

    Samples and labels are read once. A rank that holds only some stages of a model reads only what
    these need.

    Args:
        plan: the frozen plan.
        emit: sends events to the owner.
        rank: of this process.
    """

    def __init__(self, plan: Any, emit: Any, rank: int) -> None:
        from dualml.experiment.samples import load_samples
        from dualml.runner.worker.models import ModelCache

        self.plan, self.emit, self.rank = plan, emit, rank
        self.samples = functools.cache(lambda: load_samples(plan))
        #: Whether samples and labels have been read by this process; the samples read so far.
        self.has_read = (False, False)
        self.partial_samples: Any = None
        #: Rank → its models: a thread cannot use the models of another thread.
        self.models = functools.cache(lambda rank: ModelCache())

    def run_trial(self, folder: Path, backend: Any, comm: Any) -> dict[str, Any]:
        """Run one trial and return its summary; rank 0 also writes it to ``result.json``."""
        from dualml.common.machine import affinity_and_load, peak_memory_mb
        from dualml.experiment.store.trial import JOB, RESULT
        from dualml.launch.usage.sampler import sample_usage
        from dualml.runner.worker.collectives import time_collectives

        job, around = JOB.read(folder), affinity_and_load()
        arm = self.plan.experiment.arms[job.arm]
        rank = 0 if comm is None else comm.rank
        with contextlib.ExitStack() as held:
            sampler = None
            if rank == self.rank:  # of ranks that are threads, the first watches their process
                device = str(backend.environment().get("device", ""))
                sampler = held.enter_context(sample_usage(folder, rank, device, comm))

            def emit(**event: Any) -> None:
                if sampler is not None:
                    sampler.on_event(event)
                # Other ranks send signs of life only: the progress shown is rank 0's.
                self.emit(**({"phase": event.get("phase")} if rank else event))

            if arm.kind == "train":
                summary = self.run_training(folder, backend, comm, job, emit)
            else:
                summary = time_collectives(arm, comm, folder, emit)
        summary["environment"] = {**backend.environment(), **around}
        summary["peak_memory_mb"] = peak_memory_mb()
        if comm is None or comm.rank == 0:
            RESULT.write(folder, RESULT.make_record({"status": "ok", "reason": None, **summary}))
        return summary

    def run_training(
        self, folder: Path, backend: Any, comm: Any, job: TrialJob, emit: Callable[..., None]
    ) -> dict[str, Any]:
        """Train one trial and return its summary; several ranks first check that they hold the same
        initial weights."""
        from dualml.runner.worker.setup import RankResources
        from dualml.runner.worker.trial import TrialRunner

        rank = 0
        if comm is not None:
            rank = comm.rank
            weights = self.plan.initial(job.seed, self.plan.experiment.arms[job.arm])
            agree_on_weights(comm, weights, f"{job.arm}.{job.seed}")
        samples = self.samples_for(job.arm, rank, backend)
        resources = RankResources(backend, samples, comm, self.models(rank))
        trial = TrialRunner(
            self.plan, job.arm, job.seed, resources, folder, emit, job.checkpoint_every
        )
        trial.resized = bool(job.resized)
        with contextlib.closing(trial):
            return trial.run()

    def samples_for(self, arm: str, rank: int, backend: Any) -> Any:
        """Return the samples and labels that a rank reads for an arm; ranks that are threads of one
        process share what it has read."""
        from dualml.backend import backends
        from dualml.experiment.samples import load_samples

        split = self.plan.splits.get(arm)
        x, y = (True, True) if split is None else split.reads(rank)
        if backends()[backend.name].ranks == "threads":
            return self.samples().omit(samples=not x, labels=not y)
        more = x and not self.has_read[0], y and not self.has_read[1]
        if self.partial_samples is None or any(more):
            read = load_samples(self.plan, samples=more[0], labels=more[1])
            self.partial_samples = (
                read if self.partial_samples is None else read.fill_from(self.partial_samples)
            )
            self.has_read = x or self.has_read[0], y or self.has_read[1]
        return self.partial_samples.omit(samples=not x, labels=not y)


if __name__ == "__main__":
    number, *names = sys.argv[1:]
    run_child(lambda emit: run_trial_folders([Path(name) for name in names], int(number), emit))
