"""Whether an alteration is worth a whole run, where the forward pass agrees: only the gradients of
one step, or only the updates from the gradients that were recorded, are made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
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
#: Parameters that an optimizer's line is tried on before it is tried on all.
FEW = 2
#: Weights that are no farther apart are the same.
SAME = 1e-6


class Stepper(Protocol):
    def gradients(self, changes: Sequence[Alteration]) -> Mapping[str, NDArray[Any]]:
        """Gradients of the first step, by name."""

    def updated(
        self, changes: Sequence[Alteration], gradients: Sequence[Mapping[str, NDArray[Any]]]
    ) -> Mapping[str, NDArray[Any]]:
        """Weights after so many updates with these gradients."""


class Quick:
    """Tries alterations of one run.

    Args:
        now: with which alterations it is already made.
    """

    def __init__(self, now: Run, b: Trace, pairing: Pairing, explorer: Stepper) -> None:
        self.now, self.b, self.pairing, self.explorer = now, b, pairing, explorer
        first = now.comparison.first
        assert first is not None
        self.kind, self.step, self.phase = first.kind, first.step, first.phase
        far = now.comparison.distances
        outside = [one for one in now.comparison.outside if one[:2] == (self.step, self.phase)]
        self.outside = {tensor for *_, tensor in outside}
        self.left = LEFT * max((far[one] for one in outside), default=0.0)

    def hopeless(self, change: Alteration) -> bool:
        """Whether a difference as large as the largest stays; False where that is not known."""
        of_update = change.action == "optimizer" or bool(change.line)
        known = (self.phase == "update" and of_update) or (
            self.phase == "gradient" and not of_update and self.step == 1 and bool(change.sites)
        )
        if self.kind not in ("value", "nan") or not known:
            return False
        changes = [*self.now.changes, change]
        try:
            if self.phase == "gradient":
                here = self.explorer.gradients(changes)
            else:
                # An optimizer's line does to each parameter what it does to any.
                if change.line:
                    few = self.explorer.updated(changes, self.few)
                    if self.differs({name: few[name] for name in self.few[0]}):
                        return True
                here = self.explorer.updated(changes, self.all)
        except Exception:  # the framework refuses the alteration
            return True
        return self.differs(here)

    def differs(self, here: Mapping[str, NDArray[Any]]) -> bool:
        for pair in self.pairing.pairs:
            x, y = here.get(pair.a), self.b.get(self.phase, self.step, pair.b)
            width = self.width(pair.a, pair.b)
            if x is None or y is None or x.size != y.size or width > self.left:
                continue
            y = changed(y, pair.change, x.shape)
            if self.kind == "nan":  # what neither has is no difference
                if not np.array_equal(np.isfinite(x), np.isfinite(y)):
                    return True
                x, y = np.nan_to_num(x), np.nan_to_num(y)
            if not gap(x, y) <= self.left:
                return True
        return False

    def width(self, ours: str, theirs: str) -> float:
        own = self.now.trace.width(self.phase, self.step, ours)
        other = self.b.width(self.phase, self.step, theirs)
        return self.now.comparison.margin * max(own, other)

    @cached_property
    def all(self) -> list[Mapping[str, NDArray[Any]]]:
        """The gradients of each step."""
        return recorded(self.now.trace, self.step)

    @cached_property
    def few(self) -> list[Mapping[str, NDArray[Any]]]:
        """Those of some small parameters that differ; all, where these move otherwise without
        the others."""
        sizes = {name: array.size for name, array in self.all[0].items()}
        wrong = sorted(self.outside & sizes.keys(), key=sizes.__getitem__)[:FEW]
        some = [{name: one[name] for name in wrong if name in one} for one in self.all]
        whole = self.explorer.updated(self.now.changes, self.all)
        try:
            alone = self.explorer.updated(self.now.changes, some)
        except Exception:  # it needs a gradient of each
            return self.all
        same = all(gap(whole[name], alone[name]) <= SAME for name in wrong)
        return list(some) if wrong and same else self.all


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
