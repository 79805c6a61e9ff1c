"""What a backend gives a communicator: its collectives, point to point, and its tensors.

And the books that are kept of all of them: calls, seconds, messages and bytes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dualml.clock import WALL, start_wall
from dualml.communicator.how import How, Tensor, Traffic, Work
from dualml.communicator.place import Place
from dualml.errors import Unsupported

#: Bitwise reduction → NumPy's function of two arrays.
BITS: dict[str, Any] = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


class Engine(ABC):
    """One rank's side of a framework, as `Communicator` needs it."""

    backend: ClassVar[str]
    device: str = "cpu"
    #: What the framework sends by, where it has a name.
    engine: str = ""
    #: Whether messages between ranks leave by sockets.
    sockets: ClassVar[bool] = True
    #: The framework's own group of processes, where it has one.
    group: Any = None

    def __init__(self, place: Place, ranks: Sequence[int] | None = None) -> None:
        self.place = place
        self.ranks = tuple(range(place.size)) if ranks is None else tuple(ranks)
        self.rank, self.size = self.ranks.index(place.rank), len(self.ranks)
        self.traffic = Traffic()
        self._sequence = 0
        #: Tells notes on the board apart that are made anew from time to time, by all ranks alike.
        self.generation = 0
        self.calls, self.inside = 0, ""
        #: Seconds to wait before an exchange of so many bytes sent and received: a slow node.
        self.delay: Callable[[int, int], float] | None = None
        self._scratch: dict[Any, Tensor] = {}
        self._per_machine: int | None = None

    # --- what a backend says and does -------------------------------------------------------

    @abstractmethod
    def how(self, primitive: str, dtype: str = "float32", op: str = "sum") -> How:
        """How ``primitive`` is executed for this type (``dtype``) and operation (``op``) on this
        device."""

    @abstractmethod
    def tensor(self, array: Any) -> Tensor:
        """A NumPy array as a tensor of the framework on its device, copied, of the same type."""

    @abstractmethod
    def numpy(self, x: Tensor) -> Any:
        """A copy of ``x`` as a NumPy array."""

    @abstractmethod
    def dtype(self, x: Tensor) -> str:
        """``float32``, …"""

    @abstractmethod
    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """``x`` as another type, ``dtype``; a copy."""

    @abstractmethod
    def empty_like(self, x: Tensor) -> Tensor:
        """A tensor of the shape and type of ``x`` with arbitrary content, not shared."""

    @abstractmethod
    def copy(self, x: Tensor) -> Tensor:
        """A contiguous copy."""

    @abstractmethod
    def combine(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """The ``op`` ``sum``, ``max``, ``min`` or ``prod`` of two; may overwrite ``a``, never
        ``b``. See `combine_bits` for the others."""

    def combine_bits(self, a: Tensor, b: Tensor, op: str) -> Tensor:
        """Apply ``band``, ``bor`` or ``bxor`` to two tensors of whole numbers; returns a new one.

        Engines need not have it: it is NumPy's here.
        """
        return self.tensor(BITS[op](self.numpy(a), self.numpy(b)))

    def median(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the median of floating tensors of one shape, coordinate by coordinate; of an even
        number the mean of the middle two, and nan where one of them is."""
        return self.tensor(np.median([self.numpy(part) for part in parts], axis=0))

    @abstractmethod
    def scale(self, x: Tensor, factor: float) -> Tensor:
        """``x · factor`` in the type of ``x``; may overwrite ``x``."""

    @abstractmethod
    def slice(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Elements ``start`` to ``stop`` − 1 of a 1-D tensor, contiguous; a view of ``x`` where the
        framework has them."""

    @abstractmethod
    def write(self, x: Tensor, start: int, value: Tensor, then: str) -> Tensor:
        """The 1-D ``x`` with ``value`` put or added from ``start`` on: ``then`` is ``put`` or
        ``add``.

        May overwrite ``x``. Nothing is to be done where ``value`` is the view of that very place.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; before every reading of the clock."""

    @abstractmethod
    def _exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]: ...

    def _isend(self, x: Tensor, peer: int) -> Callable[[], Tensor]:
        """Begin to send; for engines that copy a message into a queue it is done at once."""
        self._exchange({peer: x}, {})
        return Work(lambda: x, lambda: True)

    def _irecv(self, buffer: Tensor, peer: int) -> Callable[[], Tensor]:
        """Begin to receive; engines that cannot do so ahead of time receive when they wait."""
        why = "it is received when it is waited for"
        return Work(lambda: self._exchange({}, {peer: buffer})[peer], why=why)

    def _isend_tagged(self, x: Tensor, peer: int, tag: int) -> Callable[[], Tensor]:
        """Begin to send what is received by the same ``tag``; of engines that `how` says have
        ``tags``."""
        raise Unsupported(f"{self.backend} has no tags")

    def _irecv_tagged(self, buffer: Tensor, peer: int | None, tag: int) -> Work:
        """Begin to receive by tag, of any rank where ``peer`` is None; of engines that `how` says
        have ``tags`` or ``any_source``. `Work.source` tells the rank."""
        raise Unsupported(f"{self.backend} has neither tags nor messages of any rank")

    def _native(self, primitive: str, x: Tensor, **options: Any) -> Tensor:
        """Execute a collective that `how` calls native; may overwrite ``x`` (which is contiguous).

        Options: ``op`` (never ``mean``) and ``root`` where the primitive has them; ``parts`` for
        scatter (root only; ``x`` is then like one of them) and all_to_all.
        """
        raise NotImplementedError(primitive)

    def _start(self, primitive: str, x: Tensor, **options: Any) -> Callable[[], Tensor]:
        """Begin a native collective and return what waits for its result, a `Work`; of engines
        that `how` says are ``asynchronous``."""
        raise NotImplementedError(primitive)

    def sent(self) -> int | None:
        """Count the bytes that this rank has sent so far, in all its groups; None where the engine
        does not show them: by memory that devices or processes share, or in a way not known here.
        """
        return None

    def close(self) -> None:  # noqa: B027 - threads have nothing to leave
        """Leave the group."""

    # --- the books ----------------------------------------------------------------------------

    def _run(self, primitive: str, x: Tensor, **options: Any) -> Tensor:
        return self._timed(primitive, lambda: self._native(primitive, x, **options))

    def _timed(self, name: str, call: Callable[[], Tensor]) -> Tensor:
        """The call, on the clock of `traffic`."""
        self.calls, self.inside = self.calls + 1, name
        elapsed = self.stopwatch()
        try:
            return call()
        finally:
            self.inside = ""
            self.traffic.seconds += elapsed()

    #: The clock that `stopwatch` reads, see `dualml.clock`.
    clock: str = WALL

    def stopwatch(self) -> Callable[[], float]:
        """Start a clock; return what stops it and tells the seconds, the device's included."""
        return start_wall(self.synchronize)

    def scratch(self, like: Tensor, key: int = 0) -> Tensor:
        """A buffer like ``like`` that the next call with this key may use again: fresh memory has
        to be mapped page by page, which takes longer than filling it."""
        name = (key, tuple(like.shape), self.dtype(like))
        if name not in self._scratch:
            self._scratch[name] = self.empty_like(like)
        return self._scratch[name]

    def forget_scratch(self) -> None:
        """Give the buffers of `scratch` back."""
        self._scratch.clear()

    def nbytes(self, x: Tensor) -> int:
        """Bytes of a tensor."""
        widths = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
        return int(math.prod(x.shape)) * widths[self.dtype(x)]
