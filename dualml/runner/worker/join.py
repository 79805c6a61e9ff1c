"""Start a worker's role as a rank: alone, as one of several threads, or as one of several
processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.errors import CommunicationError, TrialError
from dualml.common.machine import pin_cores
from dualml.launch.child import Emitter

if TYPE_CHECKING:
    from dualml.experiment.store.trial import WorkerJob

#: The work of a rank, called with its backend and its communicator (None for a single rank).
Work = Callable[[Any, Any], Any]


def run_as_rank(
    rank: int,
    plan: Any,
    job: WorkerJob,
    folder: Path,
    emit: Emitter,
    work: Work,
    started: int | None = None,
) -> Any:
    """Run the work of one rank of an arm, or of all of them where ranks are threads. Several
    processes first meet in ``folder`` and form a process group, so all ranks call it.

    Args:
        rank: of this process.
        plan: the frozen plan.
        job: the job file of the trial.
        folder: where the ranks find one another.
        emit: sends events to the process that started this one.
        work: called with the backend and the communicator, which is None for a single rank.
        started: number of ranks that an external launcher has started; a single process does all of
            the work by itself, as a user's script would.

    Returns:
        What ``work`` returned on this rank; where ranks are threads, on rank 0.

    Raises:
        TrialError: the launcher started a number of ranks that is neither one nor the arm's.
        CommunicationError: a rank is missing, or has another plan.
    """
    from dualml.backend import backends

    info, limit = backends()[job.backend], plan.experiment.limits.collective
    arm = plan.experiment.arms[job.arm]
    size = arm.world_size
    if started not in (None, 1, size):
        raise TrialError(f"{arm.launcher} started {started} ranks; the arm asks for {size}")

    def create(rank: int) -> Any:
        pin_cores(rank, job.cores)  # before the framework counts the cores it has
        return info.create(job.device, job.threads)

    if size == 1 or started == 1:
        return work(create(rank), None)
    if info.ranks == "threads":
        from dualml.backend.reference.communicator import run_threads

        return run_threads(size, lambda comm: work(create(comm.rank), comm), limit, job.check)[0]
    backend = create(rank)
    staged = arm.split is not None and arm.split.host_staged
    comm = join_group(folder, backend, rank, size, plan, job, staged=staged)
    emit.start_pulse(comm)
    result = work(backend, comm)
    comm.close()
    return result


def join_group(
    folder: Path,
    backend: Any,
    rank: int,
    size: int,
    plan: Any,
    job: WorkerJob,
    *,
    staged: bool = False,
) -> Any:
    """Agree with the other ranks on the plan, and return the process group's communicator.

    Args:
        folder: where the ranks find one another.
        backend: of this rank.
        rank, size: this rank, and the number of ranks.
        plan: the frozen plan, whose hash must be the same on all ranks.
        job: the job file of the trial.
        staged: whether messages go through host memory (`RankContext.host_staged`).

    Raises:
        CommunicationError: a rank is missing, or has another plan.
    """
    from dualml.algorithms.communicator import RankContext
    from dualml.algorithms.communicator.rendezvous import all_gather_via_store
    from dualml.backend import ProcessGroups
    from dualml.runner.worker.remote import network_interface, store_for

    limit, board = plan.experiment.limits.collective, store_for(folder)
    hashes = all_gather_via_store(
        board, "plan", rank, range(size), plan.hash, limit, f"the {size} ranks to start"
    )
    if len(set(hashes.values())) > 1:
        listed = "; ".join(f"rank {r}: {text[:12]}" for r, text in sorted(hashes.items()))
        raise CommunicationError(f"the ranks have different plans: {listed}")
    name, address = network_interface()
    place = RankContext(
        rank,
        size,
        board,
        rendezvous=job.rendezvous,
        timeout=limit,
        key=job.key,
        check=job.check,
        interface=name,
        address=address,
        host_staged=staged,
    )
    return backend.require_capability(ProcessGroups).connect(place)


def single_rank_group(backend: Any) -> Any:
    """Return the communicator of a process group that has this process as its only rank, for code
    that is written for several."""
    from dualml.algorithms.communicator import MemoryStore, RankContext
    from dualml.backend import ProcessGroups, backends
    from dualml.backend.reference.communicator import Switchboard, ThreadCommunicator

    place = RankContext(0, 1, MemoryStore())
    if backends()[backend.name].ranks == "threads":
        return ThreadCommunicator(place, Switchboard())
    return backend.require_capability(ProcessGroups).connect(place)


def agree_on_weights(comm: Any, weights: dict[str, Any], key: str) -> None:
    """Broadcast the initial weights from rank 0 and verify that all ranks hold the same; all ranks
    call it, and ``weights`` are left as they are.

    Args:
        key: of this check in the ranks' store, unique in the trial's folder.

    Raises:
        CommunicationError: the SHA-256 of a rank's weights, or of what it received, differs from
            that of rank 0's weights.
    """
    from dualml.algorithms.communicator.rendezvous import all_gather_via_store
    from dualml.experiment.fingerprint import arrays_digest

    received = {name: comm.numpy(comm.broadcast(comm.tensor(w))) for name, w in weights.items()}
    place, text = comm.context, f"{arrays_digest(received)} {arrays_digest(weights)}"
    notes = all_gather_via_store(
        place.store,
        f"weights.{key}",
        comm.rank,
        range(comm.size),
        text,
        place.timeout,
        "the initial weights",
    )
    right = notes[0].split()[1]
    wrong = [r for r, note in sorted(notes.items()) if set(note.split()) != {right}]
    if wrong:
        raise CommunicationError(
            f"initial weights differ from rank 0's on rank {', '.join(map(str, wrong))}"
        )
