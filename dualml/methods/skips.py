"""Updates that an engine passes over because a gradient is not finite: counted from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.precision.scaling import HOPELESS, SLOT, hopeless

REMEDY = "lower the learning rate, or use a method in bfloat16 or float32"


class Skips:
    """Of one trial by a method that scales its loss, or looks for gradients that are not finite.

    Attributes:
        lost: updates passed over in a row up to now.
        skipped: updates passed over so far.

    Example:
        >>> skips = Skips()
        >>> for made in (False, False, True):
        ...     skips.note(made, lambda: 1.0)
        >>> skips.lost, skips.skipped
        (0, 2)
    """

    def __init__(self) -> None:
        self.lost, self.skipped = 0, 0

    def note(self, made: bool, scale: Callable[[], float]) -> None:
        """An update that was made, or passed over.

        Args:
            scale: what the loss is multiplied with now; not asked for unless it must be said.

        Raises:
            TrialError: `HOPELESS` updates in a row were passed over.
        """
        if made:
            self.lost = 0
            return
        self.lost, self.skipped = self.lost + 1, self.skipped + 1
        if self.lost == HOPELESS:
            raise hopeless(scale(), REMEDY)

    def state(self, scale: float) -> dict[str, dict[str, NDArray[np.float64]]]:
        """As `dualml.precision.Scaler.state`, as a part of the optimizer's state."""
        numbers = {"scale": scale, "lost": self.lost, "skipped": self.skipped}
        return {SLOT: {name: np.array(number, np.float64) for name, number in numbers.items()}}

    def load(self, state: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        """What `state` returned, beside whatever else; without it, from the start."""
        own = state.get(SLOT, {})
        self.lost, self.skipped = int(own.get("lost", 0)), int(own.get("skipped", 0))
