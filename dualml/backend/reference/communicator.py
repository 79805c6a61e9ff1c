"""Communicator of the reference: ranks are threads of one process."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.algorithms.communicator import Communicator, Implementation, MemoryStore, RankContext
from dualml.algorithms.communicator.primitives import EngineWork
from dualml.common.errors import CommunicationError

POLL_S = 0.05
REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class Switchboard:
    """State that the threads share: a queue for every ordered pair of ranks, and whether one
    failed."""

    def __init__(self) -> None:
        self.queues: dict[Any, queue.Queue[Any]] = defaultdict(queue.Queue)
        self.lock = threading.Lock()
        self.failed = threading.Event()
        #: Rank in the world → bytes that it has put into queues; only that rank writes its entry.
        self.bytes_sent: dict[int, int] = defaultdict(int)

    def queue_for(self, *key: Any) -> queue.Queue[Any]:
        """Return the queue of a key (group, sender, receiver and perhaps a tag), creating it on
        first use."""
        with self.lock:
            return self.queues[key]


def tag_suffix(tag: int) -> tuple[int, ...]:
    """Return the end of the key of a queue for messages with this tag: ``(tag,)``, or () for tag 0,
    whose messages share the queue of `ThreadCommunicator._exchange`."""
    return (tag,) if tag else ()


class ThreadCommunicator(Communicator):
    """Communicator of NumPy arrays between threads. Collectives are composed of messages and reduce
    in the order of ranks.

    Args:
        place: context of this rank.
        switchboard: state that the threads share.
        ranks: the group's ranks in the world; all when omitted.
    """

    backend: ClassVar[str] = "numpy"
    sockets = False

    def __init__(
        self, place: RankContext, switchboard: Switchboard, ranks: Sequence[int] | None = None
    ) -> None:
        super().__init__(place, ranks)
        self.switchboard = switchboard

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        """Return how ``primitive`` is executed, for any ``dtype`` and ``op``: messages, barrier and
        subgroups natively by queues, asynchronous collectives not at all, any other collective
        composed of messages."""
        if primitive in ("exchange", "barrier", "subgroup", "tags", "any_source"):
            return Implementation("native", "queues between threads")
        if primitive == "asynchronous":
            return Implementation("unsupported", "a thread that waits cannot compute meanwhile")
        return Implementation("composed", "messages between threads, folded in rank order")

    def tensor(self, array: Any) -> Any:
        """Return a NumPy copy of ``array``."""
        return np.array(array)

    def numpy(self, x: Any) -> Any:
        """Return a copy of the array ``x``."""
        return x.copy()

    def dtype(self, x: Any) -> str:
        """Return the name of the dtype of ``x``, such as ``float64``."""
        return str(x.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        """Return a copy of ``x`` in another dtype; values outside its range become infinite."""
        with np.errstate(over="ignore"):
            return x.astype(dtype)

    def empty_like(self, x: Any) -> Any:
        """Return an uninitialised array with the shape and dtype of ``x``."""
        return np.empty(x.shape, x.dtype)

    def copy(self, x: Any) -> Any:
        """Return a C-contiguous copy of ``x``."""
        return np.array(x, order="C")

    def combine(self, a: Any, b: Any, op: str) -> Any:
        """Return ``a`` and ``b`` combined elementwise by ``op``, a key of `REDUCTIONS`, computed in
        place in ``a`` unless it is a scalar."""
        function: Any = REDUCTIONS[op]
        with np.errstate(invalid="ignore"):  # infinities are reported by whoever checks for them
            return function(a, b, out=a if isinstance(a, np.ndarray) else None)

    def scale(self, x: Any, factor: float) -> Any:
        """Return ``x`` times ``factor`` as a new array of the same dtype."""
        return np.multiply(x, x.dtype.type(factor))

    def slice(self, x: Any, start: int, stop: int) -> Any:
        """Return elements ``start`` … ``stop`` − 1 of ``x`` as a view."""
        return x[start:stop]

    def write(self, x: Any, start: int, value: Any, op: str) -> Any:
        """Write ``value`` into ``x`` from index ``start`` on, in place, and return ``x``. With
        ``op`` ``add`` it is added, otherwise it replaces the elements."""
        place = x[start : start + len(value)]
        if op == "add":
            with np.errstate(over="ignore", invalid="ignore"):  # reported by the caller
                place += value
        else:
            place[...] = value
        return x

    def count_sent_bytes(self) -> int | None:
        """Return the bytes that this rank has sent in all groups, those of composed collectives
        included; messages with a tag are not counted."""
        return self.switchboard.bytes_sent[self.ranks[self.rank]]

    def synchronize(self) -> None:
        """Do nothing, because NumPy computes synchronously."""

    def _exchange(self, send: Mapping[int, Any], receive: Mapping[int, Any]) -> dict[int, Any]:
        """Put copies of the arrays ``send`` (by target rank) into queues; return the arrays
        received, by source rank. The values of ``receive`` give the expected shapes and dtypes."""
        me = self.ranks[self.rank]
        for peer, x in send.items():
            self.switchboard.bytes_sent[me] += x.nbytes
            self.switchboard.queue_for(self.ranks, me, self.ranks[peer]).put(np.array(x))
        return {
            peer: self._receive((self.ranks, self.ranks[peer], me), peer, like)
            for peer, like in receive.items()
        }

    def _isend_tagged(self, x: Any, peer: int, tag: int) -> EngineWork:
        """Put a copy of ``x`` into the queue of ``peer`` and ``tag``; return a completed handle."""
        key = (self.ranks, self.ranks[self.rank], self.ranks[peer], *tag_suffix(tag))
        self.switchboard.queue_for(*key).put(np.array(x))
        return EngineWork(lambda: x, lambda: True)

    def _irecv_tagged(self, buffer: Any, peer: int | None, tag: int) -> EngineWork:
        """Return a handle that receives from ``peer`` (None: from any rank) with this ``tag`` when
        it is waited for; ``buffer`` only gives the expected shape and dtype."""
        me, peers = self.ranks[self.rank], self._other_ranks() if peer is None else [peer]
        keys = {(self.ranks, self.ranks[r], me, *tag_suffix(tag)): r for r in peers}
        found: list[int] = []

        def wait() -> Any:
            if len(keys) == 1:
                key = next(iter(keys))
            else:
                whose = f"any rank{f' with tag {tag}' if tag else ''}"
                key = self._wait_for(lambda: self._first_ready(keys), whose)
            found.append(keys[key])
            return self._receive(key, keys[key], buffer)

        return EngineWork(
            wait, lambda: self._first_ready(keys) is not None, source=lambda: found[0]
        )

    def _first_ready(self, keys: Iterable[Any]) -> Any:
        """Return the first of these queue keys whose queue has a message, or None if none has."""
        return next((key for key in keys if not self.switchboard.queue_for(*key).empty()), None)

    def _wait_for(self, find: Callable[[], Any], whom: str) -> Any:
        """Poll ``find`` until its result is not None, and return it; raise `CommunicationError` at
        the timeout or if a rank has failed. ``whom`` names the awaited in errors."""
        waited, pause = 0.0, POLL_S / 50
        while (found := find()) is None:
            if self.switchboard.failed.is_set():
                raise CommunicationError(f"{whom} gave up")
            if waited > self.context.timeout:
                raise CommunicationError(
                    f"rank {self.rank} waited {self.context.timeout:g} s for {whom}"
                )
            time.sleep(pause)
            waited += pause
        return found

    def _receive(self, key: Any, peer: int, like: Any = None) -> Any:
        """Wait for the next message in the queue ``key`` and return it. Raise `CommunicationError`
        at the timeout, if a rank has failed, or if the message has another shape or dtype than
        ``like`` (None: no check). ``peer`` names the sender in errors."""
        line, waited = self.switchboard.queue_for(*key), 0.0
        while True:
            try:
                got = line.get(timeout=POLL_S)
                break
            except queue.Empty:
                waited += POLL_S
                if self.switchboard.failed.is_set():
                    raise CommunicationError(f"rank {peer} or another one gave up") from None
                if waited > self.context.timeout:
                    raise CommunicationError(
                        f"rank {self.rank} waited {self.context.timeout:g} s for rank {peer}"
                    ) from None
        if like is not None and (got.shape != like.shape or got.dtype != like.dtype):
            raise CommunicationError(
                f"rank {self.rank} expected {like.dtype} {like.shape} from rank {peer}; "
                f"received {got.dtype} {got.shape}"
            )
        return got

    def _native(self, primitive: str, x: Any, **options: Any) -> Any:
        """Execute the barrier, the only native collective, through rank 0; the arguments are
        ignored."""
        me, others = self.ranks[self.rank], [r for r in range(self.size) if r != 0]
        if self.rank == 0:
            for r in others:
                self._receive((self.ranks, "in", self.ranks[r]), r)
            for r in others:
                self.switchboard.queue_for(self.ranks, "out", self.ranks[r]).put(None)
        else:
            self.switchboard.queue_for(self.ranks, "in", me).put(None)
            self._receive((self.ranks, "out", me), 0)

    def _subgroup(self, ranks: Sequence[int]) -> Communicator:
        """Return a communicator of these ranks of the group; it uses the same switchboard."""
        return ThreadCommunicator(self.context, self.switchboard, [self.ranks[r] for r in ranks])


def run_threads(
    size: int, work: Callable[[Communicator], Any], timeout: float = 60.0, check: bool = False
) -> list[Any]:
    """Call ``work(communicator)`` on every rank, each in a thread; return the results by rank.

    Args:
        size: number of ranks.
        work: function that each rank runs.
        timeout: seconds that a rank waits for another.
        check: whether the signature of every collective is compared, see `RankContext`.

    Raises:
        Exception: what the first rank that failed raised, after all ranks have ended.
    """
    board, switchboard = MemoryStore(), Switchboard()
    results: list[Any] = [None] * size
    errors: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        place = RankContext(rank, size, board, timeout=timeout, check=check)
        try:
            results[rank] = work(ThreadCommunicator(place, switchboard))
        except BaseException as error:  # raised in the caller below
            errors.append((rank, error))
            switchboard.failed.set()

    threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0][1]
    return results
