"""The rounding envelope: how far a backend strays from itself when only rounding changes.

A *draw* repeats the first updates of a trial with noise of the size of rounding at every step:
before each update every weight is moved by 1, 2, 4, … units in the last place (for the first,
second, third draw), up or down at random, and the samples inside the batch change their order.
Neither changes the mathematics by more than rounding does: what a draw does, rounding can do.

One nudge at the start would not be enough: real arithmetic rounds at every step, and networks with
ReLU or max pooling have kinks, where two values that agree to the last digit decide differently and
one update changes by far more than a rounding. Draws meet such kinks as often as backends do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.distance import distance, distances
from dualml.seeds import generator

Arrays = Mapping[str, NDArray[Any]]


def perturb(weights: Arrays, seed: int, draw: int, step: int) -> dict[str, NDArray[np.float32]]:
    """Every float32 weight moved by 2^draw units in the last place, up or down at random."""
    out = {}
    for name, w in weights.items():
        w32 = np.asarray(w, np.float32)
        up = generator(seed, "ulp", draw, step, name).random(w32.shape, np.float32) < 0.5
        move = np.float32(2**draw) * np.spacing(np.abs(w32))
        out[name] = w32 + np.where(up, move, -move)
    return out


def shuffled(batch: NDArray[np.int64], seed: int, draw: int, step: int) -> NDArray[np.int64]:
    """The same samples in another order: sums are rounded in another order."""
    return generator(seed, "within-batch", draw, step).permutation(batch)


def known(width: float | None) -> float:
    """JSON has no infinity: a file says null where a draw came to something not finite."""
    return math.inf if width is None else width


class Envelope:
    """Largest distance of any draw from the unperturbed trajectory, per tensor and step.

    Attributes:
        loss: (updates of the horizon,) relative distance of the loss.
        tensors: ``PHASE/STEP/TENSOR`` → relative distance.
        draws: number of draws taken in.
    """

    def __init__(self, told: Mapping[str, Any] | None = None) -> None:
        told = told or {"loss": [], "tensors": {}, "draws": 0}
        self.loss = np.array([known(width) for width in told["loss"]], np.float64)
        self.tensors = {key: known(width) for key, width in told["tensors"].items()}
        self.draws: int = told["draws"]

    def add(
        self, losses: NDArray[Any], capture: Arrays, base_losses: NDArray[Any], base_capture: Arrays
    ) -> None:
        gap = distances(losses, base_losses[: len(losses)])
        self.loss = np.maximum(self.loss, gap) if self.draws else gap
        for key, value in capture.items():
            self.tensors[key] = max(self.tensors.get(key, 0.0), distance(value, base_capture[key]))
        self.draws += 1

    def describe(self) -> dict[str, Any]:
        return {"draws": self.draws, "loss": self.loss.tolist(), "tensors": self.tensors}
