"""What can be asked of a communicator, how it does it, what is under way, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Tensor = Any
Kind = Literal["native", "composed", "unsupported"]
OPS = ("sum", "mean", "max", "min", "prod")
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
)


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
    """A collective under way."""

    def wait(self) -> Tensor:
        """Its result, when it is there."""


class Done:
    """A `Pending` that was finished when it was made."""

    def __init__(self, result: Tensor) -> None:
        self.result = result

    def wait(self) -> Tensor:
        return self.result


class Finish:
    """A native collective under way, with what remains to be done to its result."""

    def __init__(self, wait: Callable[[], Tensor], then: Callable[[Tensor], Tensor]) -> None:
        self._wait, self._then = wait, then

    def wait(self) -> Tensor:
        return self._then(self._wait())
