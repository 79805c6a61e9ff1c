"""Decide cheaply whether a mutation deserves a whole run, where the forward pass already agrees.

Only the gradients of one step, or only the updates from recorded gradients, are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import isfinite
from statistics import median
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.runs import MutatedRun
from dualml.parity.models.gap import WILD, gap
from dualml.parity.models.partners import Pairing, apply_change
from dualml.parity.models.trace import Trace, array_key
from dualml.parity.places import FLOOR

#: Share of the largest difference that a useless mutation leaves, at least.
USELESS_SHARE = 0.5
#: Number of parameters on which a mutation of an optimizer's line is tried first.
TRIAL_PARAMETERS = 2
#: Relative distance up to which weights count as equal.
WEIGHT_RTOL = 1e-6


class Stepper(Protocol):
    """A model whose gradients or updates can be recomputed under mutations."""

    def gradients(self, changes: Sequence[Mutation]) -> Mapping[str, NDArray[Any]]:
        """Return the gradients of the first step under these mutations, by name."""

    def changed_gradients(
        self, changes: Sequence[Mutation], change: Mutation
    ) -> Iterator[tuple[str, NDArray[Any]]] | None:
        """Yield the parameters whose gradients of the first step one more mutation changes, each
        with its new gradient, the last used first; only the calls on the way are replayed. None if
        only a whole backward pass can tell.

        Raises:
            Exception: a call on the way cannot be replayed.
        """

    def replay_updates(
        self, changes: Sequence[Mutation], gradients: Sequence[Mapping[str, NDArray[Any]]]
    ) -> Mapping[str, NDArray[Any]]:
        """Return the weights, by name, after one update with each of these sets of gradients in
        turn, from the initial weights, under the mutations."""


class Prefilter:
    """A cheap test of mutations that are added to one run.

    Args:
        now: the run so far, with the mutations that it already contains.
        b: the trace of the other side.
        pairing: the parameters of both sides, paired.
        explorer: the model of this side.
    """

    def __init__(self, now: MutatedRun, b: Trace, pairing: Pairing, explorer: Stepper) -> None:
        self.now, self.b, self.pairing, self.explorer = now, b, pairing, explorer
        first = now.comparison.first
        assert first is not None
        self.kind, self.step, self.phase = first.kind, first.step, first.phase
        far = now.comparison.distances
        outside = [one for one in now.comparison.outside if one[:2] == (self.step, self.phase)]
        self.outside = {tensor for *_, tensor in outside}
        self.left = USELESS_SHARE * max((far[one] for one in outside), default=0.0)

    def is_hopeless(self, change: Mutation) -> bool:
        """Return whether more than half of the largest difference remains under a mutation.

        True if the framework refuses the mutation; False if neither gradients nor updates alone can
        tell.
        """
        of_update = change.action == "optimizer" or bool(change.line)
        known = (self.phase == "update" and of_update) or (
            self.phase == "gradient" and not of_update and self.step == 1 and bool(change.sites)
        )
        if self.kind not in ("value", "nan") or not known:
            return False
        changes = [*self.now.changes, change]
        if self.phase == "gradient" and (hopeless := self.is_hopeless_nearby(change)) is not None:
            return hopeless
        try:
            if self.phase == "gradient":
                here = self.explorer.gradients(changes)
            else:
                # An optimizer's line has the same effect on every parameter.
                if change.line:
                    few = self.explorer.replay_updates(changes, self.sample_gradients)
                    if self.has_difference({name: few[name] for name in self.sample_gradients[0]}):
                        return True
                here = self.explorer.replay_updates(changes, self.all_gradients)
        except Exception:  # the framework refuses the mutation
            return True
        return self.has_difference(here)

    def is_hopeless_nearby(self, change: Mutation) -> bool | None:
        """Return whether more than half of the largest difference remains in some gradient, from
        the calls between the mutation and the parameters alone; None if these cannot tell.

        It ends at the first parameter, counted from the loss, in which that much remains.
        """
        if self.kind != "value":
            return None
        try:
            rows = self.explorer.changed_gradients(self.now.changes, change)
            if rows is None:
                return None
            missing = set(self.far_gradients)
            for name, array in rows:
                if self.has_difference({name: array}):
                    return True
                missing.discard(name)
        except Exception:  # a call that cannot be replayed alone, or a mutation that is refused
            return None
        return bool(missing)

    @cached_property
    def far_gradients(self) -> frozenset[str]:
        """The recorded gradients in which more than half of the largest difference remains."""
        return frozenset(
            name
            for name, array in self.all_gradients[self.step - 1].items()
            if self.has_difference({name: array})
        )

    def has_difference(self, here: Mapping[str, NDArray[Any]]) -> bool:
        """Return whether any array still differs by more than half of the largest difference, and
        by more than it may.

        Args:
            here: recomputed gradients or weights, by this side's names; missing ones are ignored,
                as are those that rounding alone can turn over and, among weights, those whose
                allowed distance is larger than half of the largest difference.
        """
        for pair in self.pairing.pairs:
            if pair.a not in here:
                continue
            x, y = here.get(pair.a), self.b.find_array(self.phase, self.step, pair.b)
            if x is None or y is None or x.size != y.size:
                continue
            width = self.width(pair.a, pair.b)
            unsteady = width > self.now.comparison.margin * WILD
            if width > self.left and (unsteady or self.phase != "gradient"):
                continue
            most = max(self.left, width)
            y = apply_change(y, pair.change, x.shape)
            if self.kind == "nan":  # elements that both lack are no difference
                if not np.array_equal(np.isfinite(x), np.isfinite(y)):
                    return True
                x, y = np.nan_to_num(x), np.nan_to_num(y)
            if not gap(x, y) <= most:
                return True
        return False

    def width(self, ours: str, theirs: str) -> float:
        """Return the allowed relative distance of one array: margin × the larger envelope, which
        counts at least as the median one of all gradients.

        Args:
            ours, theirs: name of the array on this side and on the other.
        """
        own = self.now.trace.envelope_width(self.phase, self.step, ours)
        other = self.b.envelope_width(self.phase, self.step, theirs)
        return self.now.comparison.margin * max(own, other, self.median_envelope)

    @cached_property
    def median_envelope(self) -> float:
        """The median envelope of the gradients of the step, on both sides; 0 in other phases."""
        if self.phase != "gradient":
            return 0.0
        start = array_key("gradient", self.step, "")
        widths = [
            width
            for side in (self.now.trace, self.b)
            for name, width in (side.envelope or {}).items()
            if name.startswith(start) and isfinite(width)
        ]
        return max(median(widths or [0.0]), FLOOR)

    @cached_property
    def all_gradients(self) -> list[Mapping[str, NDArray[Any]]]:
        """The recorded gradients of each step, by name."""
        return recorded_gradients(self.now.trace, self.step)

    @cached_property
    def sample_gradients(self) -> list[Mapping[str, NDArray[Any]]]:
        """Recorded gradients of a few small parameters that differ, for each step.

        All gradients instead, if these parameters are updated differently, or cannot be updated,
        without the others.
        """
        sizes = {name: array.size for name, array in self.all_gradients[0].items()}
        wrong = sorted(self.outside & sizes.keys(), key=sizes.__getitem__)[:TRIAL_PARAMETERS]
        some = [{name: one[name] for name in wrong if name in one} for one in self.all_gradients]
        whole = self.explorer.replay_updates(self.now.changes, self.all_gradients)
        try:
            alone = self.explorer.replay_updates(self.now.changes, some)
        except Exception:  # it needs the gradients of all parameters
            return self.all_gradients
        same = all(gap(whole[name], alone[name]) <= WEIGHT_RTOL for name in wrong)
        return list(some) if wrong and same else self.all_gradients


def recorded_gradients(trace: Trace, steps: int) -> list[Mapping[str, NDArray[Any]]]:
    """Return the recorded gradients of each of the first ``steps`` steps, by name."""
    return [
        {
            name: array
            for name in trace.names("gradient", step)
            if (array := trace.find_array("gradient", step, name)) is not None
        }
        for step in range(1, steps + 1)
    ]
