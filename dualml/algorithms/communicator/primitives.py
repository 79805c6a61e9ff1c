"""Primitives of a communicator, how each is executed, handles of pending operations, and traffic
counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from dualml.common.errors import Unsupported
from dualml.common.json_types import JsonObject

Tensor = Any
Kind = Literal["native", "composed", "unsupported"]
OPS = ("sum", "mean", "max", "min", "prod")
#: Reductions of integers only.
BITWISE = ("band", "bor", "bxor")
DTYPES = ("float16", "float32", "float64", "int32", "int64")
PRIMITIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "gather",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "exchange",
    "barrier",
    "subgroup",
    "asynchronous",
    "tags",
    "any_source",
)


def operations_of(dtype: str) -> list[str]:
    """Return the reductions that a type such as ``float32`` supports: integers have no mean, and
    only integers have bitwise ones.

    >>> operations_of("int32")
    ['sum', 'max', 'min', 'prod', 'band', 'bor', 'bxor']
    """
    if dtype.startswith("int"):
        return [*(op for op in OPS if op != "mean"), *BITWISE]
    return list(OPS)


@dataclass(frozen=True)
class Implementation:
    """Implementation of a primitive on this device: native, composed of others, or unsupported.

    Attributes:
        kind: ``native``, ``composed`` or ``unsupported``.
        detail: what executes it, what it is composed of, or why it is unsupported.
    """

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def query_implementation(
    comm: Any, primitive: str, dtype: str = "float32", op: str = "sum"
) -> Implementation:
    """Return how a communicator executes a primitive; ``unsupported`` if it does not know the
    primitive."""
    try:
        how: Implementation = comm.implementation_of(primitive, dtype, op)
    except KeyError:
        return Implementation("unsupported", f"{comm.backend} does not know {primitive}")
    return how


@dataclass
class TrafficCounter:
    """Counters of one rank's messages and bytes since the last `reset`.

    Point-to-point messages are counted as they are made. A native collective counts as one call,
    because the framework does not show its messages: ``calls`` and ``payload`` grow, messages and
    bytes do not.

    Attributes:
        sent, received: number of messages.
        bytes_sent, bytes_received: bytes of these messages.
        calls: number of native collectives, without barriers.
        payload: bytes that this rank passed to native collectives.
        seconds: time spent in messages and native collectives, waiting included.
    """

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    calls: int = 0
    payload: int = 0
    seconds: float = 0.0

    def reset(self) -> None:
        """Set all counters to zero."""
        self.__init__()  # type: ignore[misc]

    def describe(self) -> JsonObject:
        """Return name of each counter → its number, as JSON-compatible values."""
        return asdict(self)


class WorkHandle(Protocol):
    """Handle of a collective or message in progress, like `torch.distributed.Work`."""

    def wait(self) -> Tensor:
        """Wait for the result and return it; further calls return it again."""

    def is_completed(self) -> bool:
        """Return whether `wait` would return at once.

        Raises:
            Unsupported: the engine cannot tell before it waits.
        """


class CompletedWork:
    """A `WorkHandle` of an operation that is already complete."""

    def __init__(self, result: Tensor) -> None:
        self.result = result

    def wait(self) -> Tensor:
        """Return the result without waiting."""
        return self.result

    def is_completed(self) -> bool:
        """Return True, since the operation is complete from the start."""
        return True


class EngineWork:
    """An operation that an engine has started.

    Args:
        wait: waits and returns the result.
        done: returns whether ``wait`` would return at once; None: the engine cannot tell.
        why: reason to report where it cannot tell.
        source: returns the rank of the group that sent a message, after ``wait``.
    """

    def __init__(
        self,
        wait: Callable[[], Tensor],
        done: Callable[[], bool] | None = None,
        why: str = "",
        source: Callable[[], int] | None = None,
    ) -> None:
        self._wait, self.done, self.why, self.source = wait, done, why, source

    def __call__(self) -> Tensor:
        return self._wait()


class PendingWork:
    """A pending operation of an engine, with a function that completes its result.

    Args:
        wait: waits and returns what arrived; called once.
        postprocess: computes the result from it.
        work: the started operation, where it is an `EngineWork`.

    Attributes:
        source: rank of the group that a message is from, after `wait`; None for a collective.
    """

    def __init__(
        self,
        wait: Callable[[], Tensor],
        postprocess: Callable[[Tensor], Tensor],
        work: Callable[[], Tensor] | None = None,
        source: int | None = None,
    ) -> None:
        self._wait, self._then, self._work = wait, postprocess, work
        self.source, self._over, self._result = source, False, None

    def wait(self) -> Tensor:
        """Wait for the operation once, apply ``postprocess``, set `source`, and return the result;
        further calls return it again."""
        if not self._over:
            self._result = self._then(self._wait())
            self._over = True
            source = getattr(self._work, "source", None)
            self.source = source() if source is not None else self.source
        return self._result

    def is_completed(self) -> bool:
        """Return whether `wait` would return at once; raise `Unsupported` if the engine cannot
        tell."""
        if self._over:
            return True
        done = getattr(self._work, "done", None)
        if done is None:
            why = getattr(self._work, "why", "") or "this engine does not tell"
            raise Unsupported(f"whether it is done: {why}; call wait()")
        return bool(done())
