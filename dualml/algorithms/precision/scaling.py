"""Loss scaling: when the scale changes, and which updates are skipped.

Before each update every backend asks a `Scaler`, telling it whether all gradients are finite. Then
it applies the update, or leaves weights, state and the optimizer's own update count unchanged. The
learning-rate schedule and the order of samples advance either way. All ranks see the same summed
gradient, and so decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import TrialError

START = 2.0**16
BACKOFF, GROWTH, INTERVAL = 0.5, 2.0, 2000
#: Skipped updates in a row that end a trial: they have divided the scale by 2²⁵, so that the scale
#: cannot be the reason for what still overflows.
MAX_SKIPPED_UPDATES = 25
#: Key of the scaler's part in the optimizer state.
SLOT = "loss_scale"

Arrays = Mapping[str, NDArray[Any]]


def make_overflow_error(scale: float, remedy: str) -> TrialError:
    """Return, not raise, the error that ends a trial after `MAX_SKIPPED_UPDATES` skipped updates in
    a row: the last had the loss times ``scale``; ``remedy`` ends the message."""
    return TrialError(
        f"{MAX_SKIPPED_UPDATES} updates in a row were skipped because a gradient was not finite, "
        f"the last with the loss times {scale:g}; {remedy}"
    )


class Scaler:
    """The loss scale of one training, adjusted as torch.amp.GradScaler does.

    Args:
        fixed: constant scale; None: start from `START`, halve after a skipped update, double after
            `INTERVAL` applied ones in a row.

    Attributes:
        scale: factor of the next update's loss.
        good, lost: number of updates applied, or skipped, in a row up to now; ``good`` starts again
            at 0 when the scale is doubled.
        skipped: number of updates skipped so far.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", sec. 3.2.

    Example:
        >>> scaler = Scaler()
        >>> [scaler.should_step(finite) for finite in (False, True)], scaler.scale, scaler.skipped
        ([False, True], 32768.0, 1)
    """

    def __init__(self, fixed: float | None = None) -> None:
        self.fixed, self.scale = fixed, START if fixed is None else fixed
        self.good, self.lost, self.skipped = 0, 0, 0

    def should_step(self, finite: bool) -> bool:
        """Return ``finite``, whether all gradients of an update are: only then is it applied. Count
        the update as applied or skipped and, unless the scale is fixed, set the scale of the next
        one.

        Raises:
            TrialError: `MAX_SKIPPED_UPDATES` updates in a row have been skipped.
        """
        dynamic = self.fixed is None
        if finite:
            self.good, self.lost = self.good + 1, 0
            if dynamic and self.good == INTERVAL:
                self.scale, self.good = self.scale * GROWTH, 0
            return True
        self.good, self.lost, self.skipped = 0, self.lost + 1, self.skipped + 1
        if self.lost == MAX_SKIPPED_UPDATES:
            lower = "set loss_scale lower" if not dynamic else "lower the learning rate"
            raise make_overflow_error(self.scale, f'{lower}, or use precision = "bf16"')
        if dynamic:
            self.scale *= BACKOFF
        return False

    def load(self, state: Mapping[str, Arrays]) -> None:
        """Restore the scaler from an optimizer state that includes its `state`; without it, from
        the initial values."""
        own = {key: float(value) for key, value in state.get(SLOT, {}).items()}
        self.scale = own.get("scale", Scaler(self.fixed).scale)
        self.good, self.lost = int(own.get("good", 0)), int(own.get("lost", 0))
        self.skipped = int(own.get("skipped", 0))

    def state(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return the scaler's part of the optimizer state: scale and counters as float64
        scalars."""
        names = ("scale", "good", "lost", "skipped")
        return {SLOT: {name: np.array(getattr(self, name), np.float64) for name in names}}

    def unscale_gradients(self, gradients: Arrays) -> dict[str, NDArray[Any]]:
        """Return the gradients that the next update uses, from those of the scaled loss: new
        arrays, divided by the current scale, or all zeros if any gradient is not finite, as the
        update is then skipped."""
        if not all(np.isfinite(g).all() for g in gradients.values()):
            return {name: np.zeros_like(g) for name, g in gradients.items()}
        return {name: g * g.dtype.type(1 / self.scale) for name, g in gradients.items()}
