"""The worker process: one framework, one rank. ``python -m dualml.runner.worker.main RANK FOLDER
…``.

FOLDER is the folder of a trial. With several ranks there may be several folders, run one after the
other, so that the ranks start and find one another only once.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.json_types import JsonObject
from dualml.launch.child import report_to_owner
from dualml.runner.worker.join import agree_on_weights, run_as_rank

if TYPE_CHECKING:
    from dualml.runner.worker.trial import TrialRunner


def main(rank: int, folders: list[Path], size: int | None = None, channel: Any = None) -> None:
    """Run a rank's part of the trials, report the summary of the last one to the process that
    started this one, and exit the process.

    Args:
        rank: of this process.
        folders: of the trials, all of one group of ranks.
        size: number of ranks that an external launcher has started, in place of the arm's.
        channel: see `report_to_owner`.
    """
    from dualml.experiment.elastic import with_ranks
    from dualml.experiment.store.plan import plan_folder, restore_plan
    from dualml.experiment.store.trial import JOB, run_folder_of

    with report_to_owner(channel) as emit:
        emit(phase="start")
        job = JOB.read(folders[0])
        plan = restore_plan(plan_folder(run_folder_of(folders[0])), job.plan_hash)
        for each in map(JOB.read, folders):
            if each.resized:
                plan = with_ranks(plan, each.arm, each.resized)
        trials = RankTrials(plan, folders, emit, rank, size)
        emit.result = run_as_rank(rank, plan, job, folders[0], emit, trials.run_trials, size)


class RankTrials:
    """The trials that a rank runs, all of one plan, one after the other.

    Samples and labels are read once. A rank that holds only some stages of a model reads only what
    these need.

    Args:
        plan: the frozen plan.
        folders: of the trials; a single rank that no external launcher started runs only the first.
        emit: sends events to the process that started this one.
        rank: of this process.
        size: number of ranks that an external launcher has started; None without one.
    """

    def __init__(
        self, plan: Any, folders: list[Path], emit: Any, rank: int = 0, size: int | None = None
    ) -> None:
        from dualml.experiment.samples import load_samples
        from dualml.runner.worker.models import ModelCache

        self.plan, self.folders, self.emit, self.rank, self.size = plan, folders, emit, rank, size
        self.samples = functools.cache(lambda: load_samples(plan))
        #: Whether samples and labels have been read by this process; the samples read so far.
        self.has_read = (False, False)
        self.partial_samples: Any = None
        #: Rank → its models: a thread cannot use the models of another thread.
        self.models = functools.cache(lambda rank: ModelCache())

    def run_trials(self, backend: Any, comm: Any) -> JsonObject:
        """Run the trials and return the summary of the last one with its environment. Where ranks
        are threads, each of them calls it."""
        from dualml.experiment.store.trial import JOB
        from dualml.runner.worker.collectives import time_collectives
        from dualml.runner.worker.remote import upload_outputs

        alone = comm is None and self.size is None
        leads = not alone and (comm is None or comm.rank == self.rank)
        result: JsonObject = {}
        for number, folder in enumerate(self.folders[:1] if alone else self.folders):
            if leads:
                self.emit.send({"event": "trial", "number": number})
            arm = self.plan.experiment.arms[JOB.read(folder).arm]
            with self.measure_trial(folder, backend, comm) as (emit, summary):
                if arm.kind == "train":
                    with contextlib.closing(self.make_trial(folder, backend, comm, emit)) as trial:
                        trial.warm_up()
                        summary |= trial.finish(trial.train())
                else:
                    summary |= time_collectives(arm, comm, folder, emit)
            if comm is not None:
                upload_outputs(folder)  # before rank 0 says that the trial has ended
                comm.barrier()
            if leads:
                self.emit.send({"event": "settled", "number": number, **summary})
            result = summary
        return result

    @contextlib.contextmanager
    def measure_trial(
        self, folder: Path, backend: Any, comm: Any
    ) -> Iterator[tuple[Callable[..., None], JsonObject]]:
        """Measure the resources of a trial while the block runs it. Yield the function that the
        block calls with its progress, and the dict into which it puts its summary; at the end the
        environment is added, and rank 0 writes the dict to ``result.json``."""
        from dualml.common.machine import affinity_and_load, peak_memory_mb
        from dualml.experiment.store.trial import RESULT
        from dualml.launch.usage.sampler import sample_usage

        around, rank, summary = affinity_and_load(), 0 if comm is None else comm.rank, JsonObject()
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

            yield emit, summary
        summary["environment"] = {**backend.environment(), **around}
        summary["peak_memory_mb"] = peak_memory_mb()
        if rank == 0:
            RESULT.write(folder, RESULT.make_record({"status": "ok", "reason": None, **summary}))

    def make_trial(
        self, folder: Path, backend: Any, comm: Any, emit: Callable[..., None]
    ) -> TrialRunner:
        """Make the training of the trial in ``folder``, ready for its first update or to be
        resumed. Several ranks first check that they hold the same initial weights, so all ranks
        call it."""
        from dualml.experiment.store.trial import JOB
        from dualml.runner.worker.setup import RankResources
        from dualml.runner.worker.trial import TrialRunner

        job, rank = JOB.read(folder), 0
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
        return trial

    def samples_for(self, arm: str, rank: int, backend: Any) -> Any:
        """Return the samples that the stages of ``rank`` need for an arm: inputs, labels, or both;
        they are read from disk on first use. Ranks that are threads of one process share what it
        has read."""
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
    main(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
