"""Random inputs of data parallel training: parameters, and numbers of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualml.course.computed import Draw, draw_array

#: Sizes of the network's layers, and number of updates.
FEATURES, HIDDEN_SIZE, OUTPUTS, STEPS = 4, 3, 2, 3
SHAPES = {
    "w1": (FEATURES, HIDDEN_SIZE),
    "b1": (HIDDEN_SIZE,),
    "w2": (HIDDEN_SIZE, OUTPUTS),
    "b2": (OUTPUTS,),
    "shift": (FEATURES,),
}
Sizes = Callable[[Draw, int], list[int]]


def draw_even_sizes(draw: Draw, ranks: int) -> list[int]:
    """Draw one number of samples, 3 to 5, and return it for every rank."""
    return [int(draw.integers(3, 6))] * ranks


def draw_uneven_sizes(draw: Draw, ranks: int) -> list[int]:
    """Draw a number of samples, 1 to 8, for each rank, all of them different."""
    return [int(n) for n in draw.choice(np.arange(1, 9), ranks, replace=False)]


def draw_sizes_with_empty_rank(draw: Draw, ranks: int) -> list[int]:
    """Draw numbers of samples with none on one random rank other than rank 0."""
    sizes = draw_uneven_sizes(draw, ranks)
    sizes[int(draw.integers(1, ranks))] = 0
    return sizes


def draw_parameters(draw: Draw) -> dict[str, Any]:
    """Draw initial parameters: ``p/NAME`` → float32 with two decimals."""
    return {f"p/{name}": draw_array(draw, *shape) for name, shape in SHAPES.items()}
