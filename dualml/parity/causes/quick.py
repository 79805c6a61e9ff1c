"""Whether an alteration is worth a whole run, where the forward pass agrees: only the gradients of
one step, or only the updates from the gradients that were recorded, are made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.runs import Run
from dualml.parity.models.gap import gap
from dualml.parity.models.partners import Pairing, changed
from dualml.parity.models.trace import Trace

#: Of the largest difference, what an alteration leaves that explains nothing.
LEFT = 0.5


class Stepper(Protocol):
    def gradients(self, changes: Sequence[Alteration]) -> Mapping[str, NDArray[Any]]:
        """Gradients of the first step, by name."""

    def updated(
        self, changes: Sequence[Alteration], gradients: Sequence[Mapping[str, NDArray[Any]]]
    ) -> Mapping[str, NDArray[Any]]:
        """Weights after so many updates with these gradients."""


def hopeless(now: Run, change: Alteration, b: Trace, pairing: Pairing, explorer: Stepper) -> bool:
    """Whether a difference as large as the largest stays; False where that is not known."""
    first = now.comparison.first
    assert first is not None
    step, phase = first.step, first.phase
    of_update = change.action == "optimizer" or bool(change.line)
    known = (phase == "update" and of_update) or (
        phase == "gradient" and not of_update and step == 1 and bool(change.sites)
    )
    if first.kind not in ("value", "nan") or not known:
        return False
    far = now.comparison.distances
    outside = [one for one in now.comparison.outside if one[:2] == (step, phase)]
    left = LEFT * max((far[one] for one in outside), default=0.0)
    changes = [*now.changes, change]
    try:
        if phase == "gradient":
            here = explorer.gradients(changes)
        else:
            here = explorer.updated(changes, recorded(now.trace, step))
    except Exception:  # the framework refuses the alteration
        return True
    for pair in pairing.pairs:
        x, y = here.get(pair.a), b.get(phase, step, pair.b)
        width = max(now.trace.width(phase, step, pair.a), b.width(phase, step, pair.b))
        if x is None or y is None or x.size != y.size or now.comparison.margin * width > left:
            continue
        y = changed(y, pair.change, x.shape)
        if first.kind == "nan":  # what neither has is no difference
            if not np.array_equal(np.isfinite(x), np.isfinite(y)):
                return True
            x, y = np.nan_to_num(x), np.nan_to_num(y)
        if not gap(x, y) <= left:
            return True
    return False


def recorded(trace: Trace, steps: int) -> list[Mapping[str, NDArray[Any]]]:
    """The gradients of each step."""
    return [
        {
            name: array
            for name in trace.names("gradient", step)
            if (array := trace.get("gradient", step, name)) is not None
        }
        for step in range(1, steps + 1)
    ]
