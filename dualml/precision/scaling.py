"""The scale of the loss: after which update it changes, and which updates are skipped.

Every backend asks a `Scaler` before each update, with whether all gradients are finite, and makes
the update or leaves weights, state and the optimizer's own count of updates as they are. The
schedule of learning rates and the feed of samples go on either way. All ranks see the same summed
gradient, and so decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.errors import TrialError

START = 2.0**16
BACKOFF, GROWTH, INTERVAL = 0.5, 2.0, 2000
#: So many skipped updates one after the other have divided the scale by 2²⁵: what still overflows
#: then is no matter of the scale.
HOPELESS = 25
#: Where it is kept among the optimizer's state.
SLOT = "loss_scale"

Arrays = Mapping[str, NDArray[Any]]


def hopeless(scale: float, remedy: str) -> TrialError:
    """What ends a trial after `HOPELESS` skipped updates in a row, the last with this scale."""
    return TrialError(
        f"{HOPELESS} updates in a row were skipped because a gradient was not finite, the last "
        f"with the loss times {scale:g}; {remedy}"
    )


class Scaler:
    """The scale of one training, as torch.amp.GradScaler changes it.

    Args:
        fixed: the scale for good; None: it is halved after an update that had to be skipped, and
            doubled after `INTERVAL` good ones in a row, from `START`.

    Attributes:
        scale: what the loss of the next update is multiplied with.
        good, lost: updates made, or skipped, in a row up to now.
        skipped: updates skipped so far.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", sec. 3.2.

    Example:
        >>> scaler = Scaler()
        >>> [scaler.accepts(finite) for finite in (False, True)], scaler.scale, scaler.skipped
        ([False, True], 32768.0, 1)
    """

    def __init__(self, fixed: float | None = None) -> None:
        self.fixed, self.scale = fixed, START if fixed is None else fixed
        self.good, self.lost, self.skipped = 0, 0, 0

    def accepts(self, finite: bool) -> bool:
        """Whether the update is made; from then on the scale is that of the next.

        Raises:
            TrialError: `HOPELESS` updates in a row have been skipped.
        """
        dynamic = self.fixed is None
        if finite:
            self.good, self.lost = self.good + 1, 0
            if dynamic and self.good == INTERVAL:
                self.scale, self.good = self.scale * GROWTH, 0
            return True
        self.good, self.lost, self.skipped = 0, self.lost + 1, self.skipped + 1
        if self.lost == HOPELESS:
            lower = "set loss_scale lower" if not dynamic else "lower the learning rate"
            raise hopeless(self.scale, f'{lower}, or use precision = "bf16"')
        if dynamic:
            self.scale *= BACKOFF
        return False

    def load(self, state: Mapping[str, Arrays]) -> None:
        """What `state` returned, beside whatever else; without it, from the start."""
        own = {key: float(value) for key, value in state.get(SLOT, {}).items()}
        self.scale = own.get("scale", Scaler(self.fixed).scale)
        self.good, self.lost = int(own.get("good", 0)), int(own.get("lost", 0))
        self.skipped = int(own.get("skipped", 0))

    def state(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """As a part of the optimizer's state."""
        names = ("scale", "good", "lost", "skipped")
        return {SLOT: {name: np.array(getattr(self, name), np.float64) for name in names}}

    def used(self, gradients: Arrays) -> dict[str, NDArray[Any]]:
        """What the next update makes of these gradients of the scaled loss: they are unscaled, or
        zeros where it is skipped."""
        if not all(np.isfinite(g).all() for g in gradients.values()):
            return {name: np.zeros_like(g) for name, g in gradients.items()}
        return {name: g * g.dtype.type(1 / self.scale) for name, g in gradients.items()}
