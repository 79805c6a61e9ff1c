"""The communicator as an exercise gives it: its own collectives only, each call noted."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALWAYS = ("rank", "size")


class Watched:
    """Hands calls on to a communicator.

    Args:
        allowed: the collectives that the exercise has.
    """

    def __init__(self, comm: Any, allowed: Sequence[str]) -> None:
        self._comm, self._allowed = comm, tuple(allowed)
        self._elements: dict[str, list[int]] = {name: [] for name in allowed}

    def __getattr__(self, name: str) -> Any:
        if name in ALWAYS:
            return getattr(self._comm, name)
        if name not in self._allowed:
            has = ", ".join((*ALWAYS, *self._allowed))
            raise AttributeError(f"comm has no {name!r} in this exercise; it has {has}")
        collective = getattr(self._comm, name)

        def noted(*given: Any, **options: Any) -> Any:
            shape = getattr(given[0], "shape", ()) if given else ()
            self._elements[name].append(prod(int(n) for n in shape))
            return collective(*given, **options)

        return noted

    def notes(self) -> dict[str, NDArray[np.int64]]:
        """Collective → elements handed over in each of its calls so far; and forgets them."""
        made = {n: np.array(e, np.int64) for n, e in self._elements.items()}
        self._elements = {name: [] for name in self._allowed}
        return made
