"""A communicator restricted to the collectives that an exercise allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Attributes of a communicator that every exercise may use.
COMMON_ATTRIBUTES = ("rank", "size")


class RestrictedCommunicator:
    """Wrapper that passes allowed calls on to a communicator.

    Args:
        allowed: collectives that the exercise allows.
    """

    def __init__(self, comm: Any, allowed: Sequence[str]) -> None:
        self._comm, self._allowed = comm, tuple(allowed)

    def __getattr__(self, name: str) -> Any:
        """Return an allowed attribute of the communicator; raise `AttributeError`, with the list of
        them, for any other."""
        if name in COMMON_ATTRIBUTES or name in self._allowed:
            return getattr(self._comm, name)
        has = ", ".join((*COMMON_ATTRIBUTES, *self._allowed))
        raise AttributeError(f"comm has no {name!r} in this exercise; it has {has}")
