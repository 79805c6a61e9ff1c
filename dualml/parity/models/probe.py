"""The default loss of a comparison: the outputs, weighted with fixed random numbers.

Every output element gets a gradient of its own; a mean would hide errors that cancel in a sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualml.common.seeds import make_generator


def probe_weights(output: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the normal float32 weights of the loss ``probe`` for output number ``output``, the
    same in every framework and call."""
    return make_generator(0, "probe", output).standard_normal(shape, np.float32)


def class_axis(outputs: tuple[int, ...], targets: tuple[int, ...]) -> int:
    """Return the axis of the classes, given the shapes of outputs and targets: 1 in PyTorch's
    layout for images, else −1 (the last axis)."""
    images = len(outputs) > 2 and (outputs[0], *outputs[2:]) == targets
    return 1 if images and outputs[:-1] != targets else -1
