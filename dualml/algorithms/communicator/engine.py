"""Interface that a backend implements for a communicator: collectives, point-to-point messages and
tensors.

The engine also counts calls, seconds, messages and bytes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.algorithms.communicator.primitives import (
    EngineWork,
    Implementation,
    Tensor,
    TrafficCounter,
)
from dualml.algorithms.communicator.rendezvous import RankContext
from dualml.common.clock import WALL, start_wall_clock
from dualml.common.errors import Unsupported
from dualml.common.former_members import keep_former_members

#: Bitwise reduction → NumPy's function of two arrays.
BITS: dict[str, Any] = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


@keep_former_members
class CommEngine(ABC):
    """One rank's connection to a framework, as `Communicator` needs it."""

    backend: ClassVar[str]
    device: str = "cpu"
    #: Name of the framework's communication library (gloo, nccl), if any.
    engine: str = ""
    #: Whether messages between ranks travel over sockets.
    sockets: ClassVar[bool] = True
    #: The framework's own process group, if any.
    group: Any = None

    def __init__(self, place: RankContext, ranks: Sequence[int] | None = None) -> None:
        self.context = place
        self.ranks = tuple(range(place.size)) if ranks is None else tuple(ranks)
        self.rank, self.size = self.ranks.index(place.rank), len(self.ranks)
        self.traffic = TrafficCounter()
        self._sequence = 0
        #: Distinguishes entries of the store that all ranks renew from time to time.
        self.generation = 0
        self.calls, self.inside = 0, ""
        #: (bytes sent, bytes received) → seconds to wait before an exchange: simulates a slow node.
        self.delay: Callable[[int, int], float] | None = None
        self._scratch: dict[Any, Tensor] = {}
        self._per_machine: int | None = None

    # --- implemented by a backend -----------------------------------------------------------------

    @abstractmethod
    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        """Return how ``primitive`` is executed for tensors of type ``dtype`` and reduction ``op``
        on this device."""

    @abstractmethod
    def tensor(self, array: Any) -> Tensor:
        """Copy a NumPy array to a tensor of the framework on its device, of the same type."""

    @abstractmethod
    def numpy(self, x: Tensor) -> Any:
        """Return a copy of ``x`` as a NumPy array."""

    @abstractmethod
    def dtype(self, x: Tensor) -> str:
        """Return the name of the tensor's type, such as ``float32``."""

    @abstractmethod
    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """Return a copy of ``x`` converted to the type ``dtype``."""

    @abstractmethod
    def empty_like(self, x: Tensor) -> Tensor:
        """Return a new, uninitialised tensor of the shape and type of ``x``."""

    @abstractmethod
    def copy(self, x: Tensor) -> Tensor:
        """Return a contiguous copy of ``x``."""

    @abstractmethod
    def combine(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """Return two tensors combined elementwise by ``op``: ``sum``, ``max``, ``min`` or ``prod``;
        may overwrite ``a``, never ``b``. See `combine_bits` for bitwise operations."""

    def combine_bits(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """Apply ``band``, ``bor`` or ``bxor`` to two integer tensors; return a new one.

        Engines may override this NumPy implementation.
        """
        return self.tensor(BITS[op](self.numpy(a), self.numpy(b)))

    def median(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the elementwise median of floating-point tensors of one shape: of an even number
        the mean of the middle two, and nan where any of them is nan."""
        return self.tensor(np.median([self.numpy(part) for part in parts], axis=0))

    @abstractmethod
    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Return ``x · factor`` in the type of ``x``; may overwrite ``x``."""

    @abstractmethod
    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Return elements ``start`` to ``stop`` − 1 of a 1-D tensor, contiguous; a view of ``x``
        where the framework has views."""

    @abstractmethod
    def write(self, x: Tensor, start: int, value: Tensor, op: str) -> Tensor:
        """Write ``value`` into the 1-D ``x`` from ``start`` on and return ``x``; ``op`` is ``put``
        (overwrite) or ``add`` (accumulate).

        May overwrite ``x``. Where ``value`` is already a view of that place, nothing has to be
        written.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; called before every reading of the clock."""

    @abstractmethod
    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Send the tensors in ``send`` (by target rank) and receive from the ranks in ``receive``,
        all at once; return rank → tensor that it sent. The buffers in ``receive`` may be
        overwritten."""
        ...

    def _isend(self, x: Tensor, peer: int) -> Callable[[], Tensor]:
        """Start sending ``x`` to rank ``peer``; return a function that waits until it is sent and
        returns ``x``. This default has sent it when it returns."""
        self._exchange({peer: x}, {})
        return EngineWork(lambda: x, lambda: True)

    def _irecv(self, buffer: Tensor, peer: int) -> Callable[[], Tensor]:
        """Start receiving from rank ``peer`` into ``buffer``; return a function that waits and
        returns the message. This default receives only when that is called."""
        why = "it is received when it is waited for"
        return EngineWork(lambda: self._exchange({}, {peer: buffer})[peer], why=why)

    def _isend_tagged(self, x: Tensor, peer: int, tag: int) -> Callable[[], Tensor]:
        """Start sending a message with a ``tag``, as `_isend`; only for engines whose
        `implementation_of` reports ``tags``. This default raises `Unsupported`."""
        raise Unsupported(f"{self.backend} has no tags")

    def _irecv_tagged(self, buffer: Tensor, peer: int | None, tag: int) -> EngineWork:
        """Start receiving a message by tag, from any rank if ``peer`` is None; only for engines
        whose `implementation_of` reports ``tags`` or ``any_source``. `EngineWork.source` gives the
        rank. This default raises `Unsupported`."""
        raise Unsupported(f"{self.backend} has neither tags nor messages of any rank")

    def _native(self, primitive: str, x: Tensor, **options: Any) -> Tensor:
        """Run a collective that `implementation_of` reports as native and return its result; may
        overwrite ``x``, which is contiguous. This default raises `NotImplementedError`.

        Options: ``op`` (never ``mean``) and ``root`` where the primitive has them; ``parts`` for
        scatter (root only; ``x`` is then like one of them) and all_to_all.
        """
        raise NotImplementedError(primitive)

    def _start(self, primitive: str, x: Tensor, **options: Any) -> Callable[[], Tensor]:
        """Start a native collective and return an `EngineWork` that waits for its result; only for
        engines whose `implementation_of` reports ``asynchronous``. This default raises
        `NotImplementedError`."""
        raise NotImplementedError(primitive)

    def count_sent_bytes(self) -> int | None:
        """Return the bytes that this rank has sent so far in all its groups; None where the engine
        cannot count them, as with memory shared by devices or processes. This default returns
        None."""
        return None

    def close(self) -> None:  # noqa: B027 - threads have nothing to leave
        """Leave the process group and release its resources; all ranks call it, as an engine may
        wait for them. This default does nothing."""

    # --- counters ---------------------------------------------------------------------------------

    def _run(self, primitive: str, x: Tensor, **options: Any) -> Tensor:
        """Run the native collective ``primitive`` on ``x`` and return its result; count it as in
        `_timed`, its duration in seconds included."""
        return self._timed(primitive, lambda: self._native(primitive, x, **options))

    def _timed(self, name: str, call: Callable[[], Tensor]) -> Tensor:
        """Return the result of ``call``; add 1 to `calls`, set `inside` to ``name`` while it runs,
        and add its duration in seconds to `traffic`, even if it raises."""
        self.calls, self.inside = self.calls + 1, name
        elapsed = self.stopwatch()
        try:
            return call()
        finally:
            self.inside = ""
            self.traffic.seconds += elapsed()

    #: Name of the clock that `stopwatch` reads, see `dualml.common.clock`.
    clock: str = WALL

    def stopwatch(self) -> Callable[[], float]:
        """Start a clock; return a function that stops it and returns the seconds, the device's work
        included."""
        return start_wall_clock(self.synchronize)

    def scratch(self, like: Tensor, key: int = 0) -> Tensor:
        """Return an uninitialised buffer of the shape and type of ``like``. Later calls with the
        same key, shape and type return the same buffer: fresh memory has to be mapped page by page,
        which takes longer than filling it."""
        name = (key, tuple(like.shape), self.dtype(like))
        if name not in self._scratch:
            self._scratch[name] = self.empty_like(like)
        return self._scratch[name]

    def forget_scratch(self) -> None:
        """Drop the buffers of `scratch`, so that later calls make new ones."""
        self._scratch.clear()

    def nbytes(self, x: Tensor) -> int:
        """Return the size of a tensor in bytes."""
        widths = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
        return int(math.prod(x.shape)) * widths[self.dtype(x)]
