"""Unit records in a file, prefetched and written back by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualml.backend import Array
from dualml.common.errors import TrialError
from dualml.parallel.offload.files import Scratch
from dualml.parallel.offload.traffic import Meter

#: Timeout in seconds for one record.
LIMIT_S = 300.0


@dataclass(frozen=True)
class PendingRead:
    """A read of the record of unit ``number`` into the buffer ``array``, complete once ``done``
    is."""

    number: int
    array: Array
    done: Future[None]


class DiskRecords:
    """Unit records, all zero at first, stored one after the other in a file without a name; see
    `dualml.parallel.offload.records.UnitRecords`.

    With a thread there are two buffers: while one is in use, the content of the other is written
    and the next record is read into it. The thread runs its jobs in order, so nothing is read
    before it was written, and no buffer is refilled before its content was written.

    Args:
        folder: existing folder in which the file is made.
        lengths: elements of each unit's record.
        meter: counts bytes and times of reading and writing.
        thread: an executor with one worker; None: records are read and written synchronously, with
            one buffer.
    """

    def __init__(
        self,
        folder: Path,
        lengths: Sequence[int],
        dtype: str,
        meter: Meter,
        thread: Executor | None = None,
    ) -> None:
        self.meter, self.thread = meter, thread
        sizes = [length * np.dtype(dtype).itemsize for length in lengths]
        self.lengths, self.starts = lengths, [sum(sizes[:i]) for i in range(len(sizes))]
        buffers = [np.zeros(max(lengths), dtype) for _ in range(1 if thread is None else 2)]
        self.buffers = deque(buffers)  # the next one to read into comes first
        self.host, self.disk = sum(buffer.nbytes for buffer in buffers), sum(sizes)
        self.scratch = Scratch(folder, self.disk)
        self.order, self.writing = deque[int](), deque[Future[None]]()
        self.prefetched: PendingRead | None = None
        self.acquired: PendingRead | None = None
        self.hung = False

    def set_acquire_order(self, order: Iterable[int]) -> None:
        """Set the order in which units will be acquired, and forget a record read ahead. Nothing is
        read yet: each `acquire` in this order reads one record ahead if there is a thread."""
        self.order, self.prefetched = deque(order), None

    def acquire(self, number: int) -> Array:
        """Wait for the record of unit ``number`` and return it as an array, valid until the next
        call; read the record now unless it was prefetched. Changes to it are kept only by
        `release`. With a thread, start to read the next unit of the announced order. Raise the
        error of an earlier write."""
        with self._waiting():
            if self.prefetched is None or self.prefetched.number != number:
                self.prefetched = self._read(number)
            self.acquired, self.prefetched = self.prefetched, None
            self._result(self.acquired.done)
            while self.writing and self.writing[0].done():
                self._result(self.writing.popleft())
            if self.order and self.order[0] == number:
                self.order.popleft()
                if self.order and self.thread is not None:
                    self.prefetched = self._read(self.order[0])
        return self.acquired.array

    def release(self) -> None:
        """Write the buffer that was acquired last back to the file, on the thread (without waiting)
        if there is one. An unchanged record need not be released."""
        assert self.acquired is not None
        array, traffic = self.acquired.array, self.meter.current
        begin = self.starts[self.acquired.number]

        def write() -> None:
            with traffic.timed("write_ns"):
                self.scratch.write(array, begin)
            traffic.written += array.nbytes

        with self._waiting():
            self.writing.append(self._begin(write))

    def flush(self) -> None:
        """Wait for all pending writes and raise the error of one that failed."""
        with self._waiting():
            while self.writing:
                self._result(self.writing.popleft())

    def close(self) -> None:
        """Free the buffers and remove the file, without waiting for pending writes; may be called
        again."""
        self.buffers.clear()
        self.scratch.close()

    def _read(self, number: int) -> PendingRead:
        """Start to read the record of unit ``number`` into the next buffer and return the pending
        read; without a thread it is done on return."""
        array, traffic = self.buffers[0][: self.lengths[number]], self.meter.current
        self.buffers.rotate()

        def read() -> None:
            with traffic.timed("read_ns"):
                self.scratch.read(array, self.starts[number])
            traffic.read += array.nbytes

        return PendingRead(number, array, self._begin(read))

    def _begin(self, job: Callable[[], None]) -> Future[None]:
        """Submit a job to the thread and return its future; without a thread, run it now, raise its
        error here and return a completed future."""
        if self.thread is not None:
            return self.thread.submit(job)
        done = Future[None]()
        job()
        done.set_result(None)
        return done

    def _result(self, done: Future[None]) -> None:
        """Wait for a job and raise its error, if any; after `LIMIT_S` seconds mark the records as
        `hung` and raise `TrialError`."""
        try:
            done.result(LIMIT_S)
        except TooLate:
            self.hung = True
            raise TrialError(
                f"offload: {self.scratch.folder} has not answered for {LIMIT_S:g} s; choose "
                "another folder with --out, or offload to host"
            ) from None

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Add the wall time of the context to the current counter `wait_ns`."""
        with self.meter.current.timed("wait_ns"):
            yield
