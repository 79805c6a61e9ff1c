"""Gradients of each backward pass of a step, as a recorder takes them.

A step has one backward pass as a rule, and what that gives is the gradient of the update: it is
recorded once. Where a step has several passes, each is recorded; where the update has another
gradient than its one pass gave (clipped, unscaled, exchanged), the pass is recorded beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from dualml.parity.models.gap import is_bit_identical

Array = NDArray[Any]
#: Elements of all parameters up to which a process that records alone looks at backward passes.
MAX_ELEMENTS = 1 << 24
#: Elements of the parameters, the smallest ones, of which every pass of several is recorded.
MAX_ELEMENTS_OF_EACH = 1 << 22


class BackwardPasses:
    """The gradients of the backward passes of one run of a step.

    Args:
        note: function that records a tensor or array under a name: ``local/NAME``, from the second
            pass on with the number of the pass, ``local/NAME#2``.
        sizes: name of a parameter → number of its elements.
        keeps_all: whether every pass of every parameter is recorded as it comes, as for one of
            several ranks; else large models, and later passes of large parameters, are left out.
    """

    def __init__(
        self, note: Callable[[str, Any], None], sizes: Mapping[str, int], keeps_all: bool
    ) -> None:
        self.note, self.keeps_all = note, keeps_all
        self.counts: dict[str, int] = {}
        self.first: dict[str, Array] = {}
        self.small: set[str] = set()
        total = 0
        for name in sorted(sizes, key=lambda name: sizes[name]):
            total += sizes[name]
            if total <= MAX_ELEMENTS_OF_EACH:
                self.small.add(name)
        self.watches = keeps_all or sum(sizes.values()) <= MAX_ELEMENTS

    def add(self, name: str, gradient: Any, copy: Callable[[], Array]) -> None:
        """Record the gradient of one pass for the parameter ``name``, or keep it until `finish` or
        a second pass decides whether it is recorded.

        Args:
            gradient: the gradient as a tensor or array.
            copy: returns a copy of it as an array.
        """
        if not self.watches:
            return
        self.counts[name] = count = self.counts.get(name, 0) + 1
        if count == 1 and not self.keeps_all:
            self.first[name] = copy()
            return
        if not self.keeps_all and name not in self.small:
            self.first.pop(name, None)
            return
        if name in self.first:
            self.note(f"local/{name}", self.first.pop(name))
        self.note(f"local/{name}" + (f"#{count}" if count > 1 else ""), gradient)

    def finish(self, name: str, view: Callable[[], Array]) -> None:
        """Record the gradient of a parameter's only pass if the update has another gradient; do
        nothing if it is the same or was recorded.

        Args:
            view: returns the gradient of the update.
        """
        first = self.first.pop(name, None)
        if first is not None and not is_bit_identical(first, view()):
            self.note(f"local/{name}", first)
