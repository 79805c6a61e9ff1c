"""The worker process: one framework, one rank. ``python -m dualml.runner.worker FOLDER RANK …``.

FOLDER is that of a trial; with several ranks there may be several, one after the other, so that the
ranks start and find one another only once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dualml.errors import CommunicationError, UserError
from dualml.launch.child import Emitter, serve
from dualml.machine import pin


def samples_of(plan: Any) -> Any:
    from dualml.data import load_again, normalised
    from dualml.runner.trial import Samples

    data = load_again(plan.data)
    train, test, monitor = (plan.order[key] for key in ("train", "test", "monitor"))
    if data.kind == "text":
        parts = (data.train_x[train], data.train_y[train], monitor.astype("int64"))
        return Samples(*parts, data.test_x[test], data.test_y[test], 0)
    # All samples in their own order need no copy: the largest array of a trial stays the only one.
    images = data.train_x if len(train) == len(data.train_x) else data.train_x[train]
    x, y = normalised(images, data.mean, data.std), data.train_y[train]
    test_x = normalised(data.test_x[test], data.mean, data.std)
    labels = (monitor.astype("int64"), test_x, data.test_y[test], len(data.classes))
    return Samples(x, y, *labels)


def perform(folders: list[Path], rank: int, emit: Emitter) -> dict[str, Any]:
    """Run the trials of these folders; the summary of the last one, with the environment."""
    from dualml.backend import backends
    from dualml.experiment.saved import restore

    emit(phase="start")
    job = json.loads((folders[0] / "job.json").read_text("utf-8"))
    plan = restore(folders[0].parents[3] / "plan")
    if plan.hash != job["plan_hash"]:
        raise UserError(
            f"the plan's hash is {plan.hash[:12]}, the job's is {job['plan_hash'][:12]}"
        )
    info = backends()[job["backend"]]
    pin(rank, job["cores"])  # before the framework counts the cores it has
    size = plan.experiment.arms[job["arm"]].world_size
    run = Runner(plan, emit)
    if size == 1:
        return run.trial(folders[0], info.create(job["device"], job["threads"]), None)
    if info.ranks == "threads":
        make = partial(info.create, job["device"], job["threads"])
        return threads(run, folders, size, make, job["check"], job["cores"])
    backend = info.create(job["device"], job["threads"])
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


def join(folder: Path, backend: Any, rank: int, size: int, plan: Any, job: dict[str, Any]) -> Any:
    """Agree with the other ranks on what is to be done, and become a group.

    Raises:
        CommunicationError: a rank did not come, or came with another plan.
    """
    from dualml.communicator import FileBoard, Place
    from dualml.communicator.board import exchange_notes

    limit = plan.experiment.limits.collective
    board = FileBoard(folder / "board")
    told = exchange_notes(
        board, "plan", rank, range(size), plan.hash, limit, f"the {size} ranks to start"
    )
    if len(set(told.values())) > 1:
        listed = "; ".join(f"rank {r}: {text[:12]}" for r, text in sorted(told.items()))
        raise CommunicationError(f"the ranks have different plans: {listed}")
    place = Place(
        rank, size, board, rendezvous=job["rendezvous"], timeout=limit, key=job["key"],
        check=job["check"],
    )  # fmt: skip
    return backend.connect(place)


class Runner:
    """Runs trials of one plan; the samples are read once."""

    def __init__(self, plan: Any, emit: Emitter) -> None:
        from dualml.runner.ranks import Workshop

        self.plan, self.emit = plan, emit
        self.workshop, self.together = Workshop(), True
        self.samples: Any = None

    def trial(self, folder: Path, backend: Any, comm: Any) -> dict[str, Any]:
        """One trial; rank 0 leaves its summary in ``result.json``."""
        from dualml.files import write_json
        from dualml.machine import peak_memory_mb

        rank = comm.rank if comm is not None else 0
        job = json.loads((folder / "job.json").read_text("utf-8"))
        kind = self.plan.experiment.arms[job["arm"]].kind
        found = self.train if kind == "train" else self.time
        summary = found(folder, backend, comm, job)
        summary["environment"] = backend.environment()
        summary["peak_memory_mb"] = peak_memory_mb()
        if rank == 0:
            write_json(folder / "result.json", {"status": "ok", "reason": None, **summary})
        return summary

    def train(self, folder: Path, backend: Any, comm: Any, job: dict[str, Any]) -> dict[str, Any]:
        from dualml.runner.trial import Trial

        if self.samples is None:
            self.samples = samples_of(self.plan)
        if comm is not None:
            arm = self.plan.experiment.arms[job["arm"]]
            weights = self.plan.initial(job["seed"], arm)
            agree_on_weights(comm, weights, f"{job['arm']}.{job['seed']}")
        emit = self.emit if comm is None or comm.rank == 0 else quiet(self.emit)
        trial = Trial(
            self.plan, job["arm"], job["seed"], backend, self.samples, folder, emit,
            job["checkpoint_every"], comm, self.workshop if self.together else None,
        )  # fmt: skip
        return trial.run()

    def time(self, folder: Path, backend: Any, comm: Any, job: dict[str, Any]) -> dict[str, Any]:
        from dualml.runner.collectives import time_collectives

        arm = self.plan.experiment.arms[job["arm"]]
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
