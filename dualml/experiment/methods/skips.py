"""Counts of updates that an engine skips because a gradient is not finite, observed from
outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES, SLOT, make_overflow_error

REMEDY = "lower the learning rate, or use a method in bfloat16 or float32"


class SkippedUpdates:
    """Skipped updates of one trial, for methods that scale the loss or check gradients.

    Attributes:
        lost: number of consecutive updates skipped until now.
        skipped: number of updates skipped so far.

    Example:
        >>> skips = SkippedUpdates()
        >>> for made in (False, False, True):
        ...     skips.note(made, lambda: 1.0)
        >>> skips.lost, skips.skipped
        (0, 2)
    """

    def __init__(self) -> None:
        self.lost, self.skipped = 0, 0

    def note(self, made: bool, scale: Callable[[], float]) -> None:
        """Count an update that was made or skipped.

        Args:
            scale: function that returns the current loss scale; called only for an error message.

        Raises:
            TrialError: `MAX_SKIPPED_UPDATES` consecutive updates were skipped.
        """
        if made:
            self.lost = 0
            return
        self.lost, self.skipped = self.lost + 1, self.skipped + 1
        if self.lost == MAX_SKIPPED_UPDATES:
            raise make_overflow_error(scale(), REMEDY)

    def state(self, scale: float) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return the counts and the current loss scale ``scale`` as a part of the optimizer state,
        in the form that `dualml.algorithms.precision.Scaler.state` has."""
        numbers = {"scale": scale, "lost": self.lost, "skipped": self.skipped}
        return {SLOT: {name: np.array(number, np.float64) for name, number in numbers.items()}}

    def load(self, state: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        """Restore the counts from an optimizer state; start from zero if it has none."""
        own = state.get(SLOT, {})
        self.lost, self.skipped = int(own.get("lost", 0)), int(own.get("skipped", 0))
