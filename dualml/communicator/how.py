"""What can be asked of a communicator, how it does it, what is under way, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from dualml.errors import Unsupported

Tensor = Any
Kind = Literal["native", "composed", "unsupported"]
OPS = ("sum", "mean", "max", "min", "prod")
#: Reductions of whole numbers alone.
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
    """List the reductions that a type has: no mean of whole numbers, no bits of others.

    >>> operations_of("int32")
    ['sum', 'max', 'min', 'prod', 'band', 'bor', 'bxor']
    """
    if dtype.startswith("int"):
        return [*(op for op in OPS if op != "mean"), *BITWISE]
    return list(OPS)


@dataclass(frozen=True)
class How:
    """How a primitive is executed.

    Attributes:
        kind: ``native``, ``composed`` or ``unsupported``.
        detail: by or from what, or why it is not.
    """

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def ask(comm: Any, primitive: str, dtype: str = "float32", op: str = "sum") -> How:
    """Ask a communicator how it executes a primitive, also one that it does not know."""
    try:
        how: How = comm.how(primitive, dtype, op)
    except KeyError:
        return How("unsupported", f"{comm.backend} does not know {primitive}")
    return how


@dataclass
class Traffic:
    """Messages and bytes of one rank since the last `reset`.

    Point-to-point messages are counted as they are made. A native collective is one call whose
    messages the framework does not show: ``calls`` and ``payload`` (bytes handed to it) are
    counted, messages and bytes are not.

    Attributes:
        sent, received: messages.
        bytes_sent, bytes_received: their bytes.
        calls: native collectives.
        payload: bytes handed to native collectives by this rank.
        seconds: time inside all of them.
    """

    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    calls: int = 0
    payload: int = 0
    seconds: float = 0.0

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def describe(self) -> dict[str, Any]:
        return asdict(self)


class Pending(Protocol):
    """A collective or message under way, as `torch.distributed.Work` is one."""

    def wait(self) -> Tensor:
        """Return its result, when it is there; again, when it is called again."""

    def done(self) -> bool:
        """Return whether `wait` would return at once.

        Raises:
            Unsupported: the engine does not tell before it is waited for.
        """


class Done:
    """A `Pending` that was finished when it was made."""

    def __init__(self, result: Tensor) -> None:
        self.result = result

    def wait(self) -> Tensor:
        return self.result

    def done(self) -> bool:
        return True


class Work:
    """What an engine has begun.

    Args:
        wait: waits and returns its result.
        done: whether that would return at once; None: the engine does not tell.
        why: what to say where it does not tell.
        source: rank of the group that a message came from, once it has been waited for.
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


class Finish:
    """An operation of an engine under way, with what remains to be done to its result.

    Args:
        wait: waits and returns what came; called once.
        then: makes the result of it.
        work: what the engine has begun, where it is a `Work`.

    Attributes:
        source: rank of the group that a message is from, after `wait`; None of a collective.
    """

    def __init__(
        self,
        wait: Callable[[], Tensor],
        then: Callable[[Tensor], Tensor],
        work: Callable[[], Tensor] | None = None,
        source: int | None = None,
    ) -> None:
        self._wait, self._then, self._work = wait, then, work
        self.source, self._over, self._result = source, False, None

    def wait(self) -> Tensor:
        if not self._over:
            self._result = self._then(self._wait())
            self._over = True
            source = getattr(self._work, "source", None)
            self.source = source() if source is not None else self.source
        return self._result

    def done(self) -> bool:
        if self._over:
            return True
        done = getattr(self._work, "done", None)
        if done is None:
            why = getattr(self._work, "why", "") or "this engine does not tell"
            raise Unsupported(f"whether it is done: {why}; call wait()")
        return bool(done())
