"""Collectives of ZeRO: reduce-scatter of gradients and all-gather of weights over a
communicator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.primitives import CompletedWork, WorkHandle
from dualml.common.array_types import Tensor
from dualml.common.errors import Unsupported
from dualml.parallel.aggregation import CollectiveSchedule, Ring, Transfer
from dualml.parallel.aggregation.base import execute_schedule
from dualml.parallel.aggregation.ring import ring_pass
from dualml.parallel.zero.settings import Sharding


@cache
def reduce_scatter_schedule(n: int) -> CollectiveSchedule:
    """Return the ring reduce-scatter schedule: at the end rank r has the sum of chunk r.

    >>> print(reduce_scatter_schedule(3).grid())
    rank 0 | 2→1+  1→1+
    rank 1 | 0→2+  2→2+
    rank 2 | 1→0+  0→0+
    """
    return CollectiveSchedule(n, n, ring_pass(n, -1, "add"))


@cache
def all_gather_schedule(n: int) -> CollectiveSchedule:
    """Return the ring all-gather schedule: at the end every rank has chunk r of rank r.

    >>> print(all_gather_schedule(3).grid())
    rank 0 | 0→1=  2→1=
    rank 1 | 1→2=  0→2=
    rank 2 | 2→0=  1→0=
    """
    return CollectiveSchedule(n, n, ring_pass(n, 0, "put"))


@cache
def broadcast_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule in which the ranks broadcast their chunks one after the other. Each rank
    sends and receives as much as in an all-gather, but every broadcast is one step."""
    steps = (
        tuple(Transfer(root, rank, root, root, "put") for rank in range(n) if rank != root)
        for root in range(n)
    )
    return CollectiveSchedule(n, n, tuple(steps))


@cache
def all_reduce_schedule(n: int) -> CollectiveSchedule:
    """Return the schedule of the ring all-reduce of n chunks among n ranks: at the end every rank
    has the sum of all chunks."""
    return Ring().schedule(n)


class ShardCollectives:
    """The collectives of one group of ranks; the group size must divide the length of every vector.

    With `Sharding.overlap`, a thread runs the collectives that were started, one after the other:
    all ranks start the same collectives in the same order, and nobody else uses the communicator
    before they are waited for. Framework kernels let other threads run meanwhile.

    Attributes:
        seconds: time that the calling thread spent waiting for collectives.
        delay_hook: called with the schedule and the bytes of each collective of the framework,
            whose messages cannot be delayed one by one.
        reduce_schedule, gather_schedule: schedules of the gradient sum and of the weights.
        main_thread: identifier of the thread whose waiting time is counted.
    """

    def __init__(self, comm: Communicator, sharding: Sharding) -> None:
        self.comm, self.sharding, self.seconds = comm, sharding, 0.0
        self.main_thread = threading.get_ident()
        if sharding.overlap:
            check_overlap(comm)
        self.thread = ThreadPoolExecutor(1, "zero") if sharding.overlap else None
        self.delay_hook: Callable[[CollectiveSchedule, int], None] = lambda schedule, nbytes: None
        self.reduce_schedule = reduce_scatter_schedule(comm.size)
        self.gather_schedule = all_gather_schedule(comm.size)
        if sharding.reduce == "all_reduce":
            self.reduce_schedule = all_reduce_schedule(comm.size)
            self.gather_schedule = broadcast_schedule(comm.size)

    def local_part(self, vector: Tensor) -> Tensor:
        """Return this rank's part of a vector, the r-th of n equal ones, as a view."""
        part = len(vector) // self.comm.size
        return self.comm.slice(vector, self.comm.rank * part, (self.comm.rank + 1) * part)

    def reduce_scatter(self, vector: Tensor) -> Tensor:
        """Reduce-scatter a vector in place and return this rank's part of the sum; the rest of the
        vector is undefined afterwards."""
        comm = self.comm
        with self.timed(self.reduce_schedule, vector):
            if not self.sharding.native:
                own = self.local_part(execute_schedule(self.reduce_schedule, comm, vector))
                comm.forget_scratch()  # scratch memory as large as a part of each unit
                return own
            if self.sharding.reduce == "all_reduce":
                return self.local_part(self.write_part(vector, 0, comm.all_reduce(vector)))
            part = comm.rank * (len(vector) // comm.size)
            return self.local_part(self.write_part(vector, part, comm.reduce_scatter(vector)))

    def all_gather(self, vector: Tensor) -> None:
        """All-gather the ranks' parts into ``vector`` in place; each rank's own part is there
        already."""
        comm, part = self.comm, len(vector) // self.comm.size
        with self.timed(self.gather_schedule, vector):
            if not self.sharding.native:
                execute_schedule(self.gather_schedule, comm, vector)
            elif self.sharding.reduce == "all_reduce":
                for root in range(comm.size):
                    place = comm.slice(vector, root * part, (root + 1) * part)
                    self.write_part(vector, root * part, comm.broadcast(place, root))
            else:
                for rank, came in enumerate(comm.all_gather(self.local_part(vector))):
                    self.write_part(vector, rank * part, came)

    def start(self, work: Callable[..., object], *arguments: Any) -> WorkHandle:
        """Run ``work`` with these arguments on the thread and return a handle at once; without
        overlap run it now and return the handle of completed work."""
        if self.thread is None:
            return CompletedWork(work(*arguments))
        return AsyncWork(self, self.thread.submit(work, *arguments))

    def gather_to_host(self, part: NDArray[Any]) -> NDArray[Any]:
        """All-gather each rank's ``part`` and return the whole vector on the host, on every rank;
        all ranks call it."""
        parts = self.comm.all_gather(self.comm.tensor(part))
        return np.concatenate([self.comm.numpy(each) for each in parts])

    def write_part(self, vector: Tensor, start: int, value: Tensor) -> Tensor:
        """Overwrite ``vector`` in place by ``value`` from index ``start`` on and return it."""
        return self.comm.write(vector, start, value, "put")

    @contextmanager
    def timed(self, schedule: CollectiveSchedule, vector: Tensor) -> Iterator[None]:
        """Add the time of the context to `seconds` if the main thread runs it; before that, call
        the delay hook if collectives are the framework's own."""
        begin = time.perf_counter()
        if self.sharding.native:
            self.delay_hook(schedule, self.comm.nbytes(vector))
        yield
        if threading.get_ident() == self.main_thread:
            self.seconds += time.perf_counter() - begin


class AsyncWork:
    """Handle of collectives that the thread of `ShardCollectives` runs; a `WorkHandle`."""

    def __init__(self, moves: ShardCollectives, future: Future[Any]) -> None:
        self.moves, self.future = moves, future

    def wait(self) -> Any:
        """Wait for the thread and return the result, or raise its error; the seconds spent waiting
        are added to the `seconds` of the `ShardCollectives`."""
        begin = time.perf_counter()
        result = self.future.result()
        self.moves.seconds += time.perf_counter() - begin
        return result

    def is_completed(self) -> bool:
        """Return whether the thread has finished this work."""
        return self.future.done()


def check_overlap(comm: Communicator) -> None:
    """Raise `Unsupported`, on all ranks, if collectives cannot run during computation or the ranks
    are not on a CPU."""
    how = comm.implementation_of("asynchronous")
    if how.kind != "native":
        raise Unsupported(f"overlap of {comm.backend}'s ranks: {how.detail}")
    if not comm.device.startswith("cpu"):
        raise Unsupported(f"overlap with zero is for ranks on a CPU; these are on {comm.device}")
