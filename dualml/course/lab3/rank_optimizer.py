"""Optimizer of one rank, with typical mistakes as options, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import Flags

#: Names of the parameters, and parameters or gradients by name.
WEIGHTS = ("w1", "b1", "w2", "b2")
Weights = dict[str, Any]


def skips_update(f: Flags, rank: int, sizes: Sequence[int]) -> bool:
    """Return whether ``rank`` leaves its parameters as they are, by one of the typical mistakes
    named in ``f``."""
    return (
        "update_nothing" in f
        or "update_late" in f  # made before the gradient was computed
        or ("update_root_only" in f and rank > 0)
        or ("update_empty_skips" in f and not sizes[rank])
        or ("update_empty_stops" in f and 0 in sizes)
    )


class RankOptimizer:
    """Gradient descent, or AdaGrad, on one rank's parameters, with typical mistakes as options.

    Args:
        weights: parameters by name, which are updated in place.
        hyper: ``lr``, ``adaptive``, ``eps``.
        number: dtype of all numbers.
    """

    def __init__(self, weights: Weights, hyper: Mapping[str, Any], number: Any) -> None:
        self.weights, self.number = weights, number
        self.lr, self.eps = number(hyper["lr"]), number(hyper["eps"])
        self.adaptive = hyper["adaptive"]
        #: Sum of the squared gradients, and the gradient of the update before, by name.
        self.squares: Weights = {name: number(0) for name in WEIGHTS}
        self.before: Weights = {name: number(0) for name in WEIGHTS}

    def gradient_to_use(self, name: str, g: Any, ranks: int, f: Flags) -> Any:
        """Return the gradient by which parameter ``name`` is updated, ``g`` unless the typical
        mistakes named in ``f`` replace it by that of the update before or add that to it; keep
        ``g`` for the next update."""
        if "update_accumulated#2" in f:  # every rank adds what all of them have kept
            g = g + self.number(ranks) * self.before[name]
        used = self.before[name] if "update_late#2" in f else g
        self.before[name] = g
        return used

    def step(self, name: str, g: Any, f: Flags) -> None:
        """Update parameter ``name`` by the gradient ``g``."""
        for _ in range(2 if "update_twice" in f else 1):
            change = g
            if self.adaptive:
                self.squares[name] = self.squares[name] + g * g
                change = g / (np.sqrt(self.squares[name]) + self.eps)
            self.weights[name] = self.weights[name] - self.lr * change


def average_parameters(
    optimizers: Sequence[RankOptimizer], sizes: Sequence[int], f: Flags, number: Any
) -> None:
    """Set every rank's parameters to their mean, weighted by ``sizes`` or, by mistake, equally."""
    even = "update_unweighted" in f
    shares = [
        number(1) / number(len(sizes)) if even else number(s) / number(sum(sizes)) for s in sizes
    ]
    parameters = [dict(optimizer.weights) for optimizer in optimizers]
    for optimizer in optimizers:
        for name in WEIGHTS:
            terms = zip(parameters, shares, strict=True)
            optimizer.weights[name] = sum(p[name] * s for p, s in terms)
