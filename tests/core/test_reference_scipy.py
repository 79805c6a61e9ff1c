"""The reference's convolution against SciPy's, which shares no code with it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.signal import correlate

from dualml.algorithms.model.layers import Conv2d
from dualml.backend.reference.images import conv_backward, conv_forward


@pytest.mark.parametrize(
    ("samples", "inputs", "outputs", "height", "width", "kernel", "padding"),
    [
        (2, 1, 6, 28, 28, 5, 2),
        (3, 6, 16, 14, 14, 5, 0),
        (1, 3, 4, 9, 7, 3, 1),
        (5, 2, 3, 6, 11, 1, 0),
    ],
)
def test_output_and_gradients_are_sums_of_correlations(
    samples: int, inputs: int, outputs: int, height: int, width: int, kernel: int, padding: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, inputs, height, width))
    weight = rng.normal(size=(outputs, inputs, kernel, kernel))
    layer, params = Conv2d(inputs, outputs, kernel, padding), {"weight": weight}
    params["bias"] = bias = rng.normal(size=outputs)
    y, cache = conv_forward(layer, x, params)
    dy = rng.normal(size=y.shape)
    dx, gradients = conv_backward(layer, dy, cache, params)
    side = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), side, side))
    gradient = np.zeros_like(padded)
    for o in range(outputs):
        flipped = weight[o, :, ::-1, ::-1]
        for n in range(samples):
            slid = sum(correlate(padded[n, c], weight[o, c], "valid") for c in range(inputs))
            assert_allclose(y[n, o], slid + bias[o], atol=1e-11)
            for c in range(inputs):
                gradient[n, c] += correlate(dy[n, o], flipped[c], "full")
        for c in range(inputs):
            each = [correlate(padded[n, c], dy[n, o], "valid") for n in range(samples)]
            assert_allclose(gradients["weight"][o, c], sum(each), atol=1e-11)
    rows, columns = (slice(padding, padding + size) for size in (height, width))
    assert_allclose(dx, gradient[:, :, rows, columns], atol=1e-11)
    assert_allclose(gradients["bias"], dy.sum(axis=(0, 2, 3)), atol=1e-11)
