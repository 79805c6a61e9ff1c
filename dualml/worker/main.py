"""The worker process: one framework, one rank. ``python -m dualml.worker.main FOLDER RANK …``.

FOLDER is that of a trial; with several ranks there may be several, one after the other, so that the
ranks start and find one another only once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.errors import CommunicationError, UserError
from dualml.launch.child import Emitter, serve
from dualml.machine import pin

if TYPE_CHECKING:
    from dualml.store.trial import Job, WorkerJob


def perform(folders: list[Path], rank: int, emit: Emitter) -> dict[str, Any]:
    """Run the trials of these folders; the summary of the last one, with the environment."""
    from dualml.backend import backends
    from dualml.store.plan import plan_folder, restore
    from dualml.store.trial import JOB, run_folder

    emit(phase="start")
    job = JOB.read(folders[0])
    plan = restore(plan_folder(run_folder(folders[0])))
    if plan.hash != job.plan_hash:
        raise UserError(f"the plan's hash is {plan.hash[:12]}, the job's is {job.plan_hash[:12]}")
    info = backends()[job.backend]
    pin(rank, job.cores)  # before the framework counts the cores it has
    size = plan.experiment.arms[job.arm].world_size
    run = Runner(plan, emit)
    if size == 1:
        return run.trial(folders[0], info.create(job.device, job.threads), None)
    if info.ranks == "threads":
        make = partial(info.create, job.device, job.threads)
        return threads(run, folders, size, make, job.check, job.cores)
    backend = info.create(job.device, job.threads)
    comm = join(folders[0], backend, rank, size, plan, job)
    emit.pulse(comm)
    summary: dict[str, Any] = {}
    for number, folder in enumerate(folders):
        emit.send({"event": "trial", "number": number})
        summary = run.trial(folder, backend, comm)
        comm.barrier()
        emit.send({"event": "settled", "number": number, **summary})
    comm.close()
    return summary


def threads(
    run: Runner,
    folders: list[Path],
    size: int,
    create: Callable[[], Any],
    check: bool,
    cores: int,
) -> dict[str, Any]:
    """All ranks as threads of this process."""
    from dualml.reference.communicator import run_threads

    summary: dict[str, Any] = {}
    run.together = False  # every thread needs a model of its own
    for number, folder in enumerate(folders):
        run.emit.send({"event": "trial", "number": number})

        def work(comm: Any, folder: Path = folder) -> dict[str, Any]:
            pin(comm.rank, cores)
            return run.trial(folder, create(), comm)

        limit = run.plan.experiment.limits.collective
        summary = run_threads(size, work, limit, check)[0]
        run.emit.send({"event": "settled", "number": number, **summary})
    return summary


def join(folder: Path, backend: Any, rank: int, size: int, plan: Any, job: WorkerJob) -> Any:
    """Agree with the other ranks on what is to be done, and become a group.

    Raises:
        CommunicationError: a rank did not come, or came with another plan.
    """
    from dualml.backend import Grouping
    from dualml.communicator import FileBoard, Place
    from dualml.communicator.board import exchange_notes
    from dualml.store.trial import board_path

    limit = plan.experiment.limits.collective
    board = FileBoard(board_path(folder))
    told = exchange_notes(
        board, "plan", rank, range(size), plan.hash, limit, f"the {size} ranks to start"
    )
    if len(set(told.values())) > 1:
        listed = "; ".join(f"rank {r}: {text[:12]}" for r, text in sorted(told.items()))
        raise CommunicationError(f"the ranks have different plans: {listed}")
    place = Place(
        rank, size, board, rendezvous=job.rendezvous, timeout=limit, key=job.key,
        check=job.check,
    )  # fmt: skip
    return backend.ability(Grouping).connect(place)


class Runner:
    """Runs trials of one plan; the samples are read once."""

    def __init__(self, plan: Any, emit: Emitter) -> None:
        from dualml.worker.models import ModelCache

        self.plan, self.emit = plan, emit
        self.models, self.together = ModelCache(), True
        self.samples: Any = None

    def trial(self, folder: Path, backend: Any, comm: Any) -> dict[str, Any]:
        """One trial; rank 0 leaves its summary in ``result.json``."""
        from dualml.machine import peak_memory_mb
        from dualml.store.trial import JOB, RESULT

        rank = comm.rank if comm is not None else 0
        job = JOB.read(folder)
        kind = self.plan.experiment.arms[job.arm].kind
        work = self.train if kind == "train" else self.time
        summary = work(folder, backend, comm, job)
        summary["environment"] = backend.environment()
        summary["peak_memory_mb"] = peak_memory_mb()
        if rank == 0:
            RESULT.write(folder, RESULT.made({"status": "ok", "reason": None, **summary}))
        return summary

    def train(self, folder: Path, backend: Any, comm: Any, job: Job) -> dict[str, Any]:
        from dualml.experiment.samples import samples_of
        from dualml.worker.trial import Trial

        if self.samples is None:
            self.samples = samples_of(self.plan)
        if comm is not None:
            arm = self.plan.experiment.arms[job.arm]
            weights = self.plan.initial(job.seed, arm)
            agree_on_weights(comm, weights, f"{job.arm}.{job.seed}")
        emit = self.emit if comm is None or comm.rank == 0 else quiet(self.emit)
        trial = Trial(
            self.plan, job.arm, job.seed, backend, self.samples, folder, emit,
            job.checkpoint_every, comm, self.models if self.together else None,
        )  # fmt: skip
        return trial.run()

    def time(self, folder: Path, backend: Any, comm: Any, job: Job) -> dict[str, Any]:
        from dualml.worker.collectives import time_collectives

        arm = self.plan.experiment.arms[job.arm]
        return time_collectives(arm, comm, folder, self.emit)


def quiet(emit: Emitter) -> Callable[..., None]:
    """Signs of life without progress: the bar shows rank 0's."""
    return lambda **event: emit(phase=event.get("phase"))


def agree_on_weights(comm: Any, weights: dict[str, Any], key: str) -> None:
    """Broadcast the initial weights from rank 0 and verify that all ranks hold the same.

    Raises:
        CommunicationError: ranks whose weights have another SHA-256 than rank 0's broadcast.
    """
    from dualml.communicator.board import exchange_notes
    from dualml.communicator.place import Place
    from dualml.experiment.fingerprint import digest

    got = {name: comm.numpy(comm.broadcast(comm.tensor(w))) for name, w in weights.items()}
    place: Place = comm.place
    text = f"{digest(got)} {digest(weights)}"
    told = exchange_notes(
        place.board, f"weights.{key}", comm.rank, range(comm.size), text,
        place.timeout, "the initial weights",
    )  # fmt: skip
    right = told[0].split()[1]
    wrong = [r for r, note in sorted(told.items()) if set(note.split()) != {right}]
    if wrong:
        raise CommunicationError(
            f"initial weights differ from rank 0's on rank {', '.join(map(str, wrong))}"
        )


def main() -> None:
    rank, folders = int(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    serve(lambda emit: perform(folders, rank, emit))


if __name__ == "__main__":
    main()
