"""Collectives under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dualml.communicator.how import Tensor


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
