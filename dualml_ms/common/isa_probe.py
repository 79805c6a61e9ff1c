"""Time convolutions and a matrix product for `dualml_ms.common.isa`, in a process of its own, and
print the milliseconds as one line of JSON.

LeNet's two convolutions at batch 64, forward and backward, and a square matrix product, compiled.
A file and not a string, because MindSpore compiles only what it can read from a file.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Convolutions(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True)

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Return the sum of all outputs for images ``x`` (B, 1, 28, 28)."""
        return self.conv2(self.pool(self.conv1(x))).sum()


class Gradients(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.gradients = ops.value_and_grad(net, None, net.trainable_params())

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Return the network's value for ``x`` and the gradients of its parameters."""
        return self.gradients(x)


class Product(nn.Cell):
    def construct(self, a):  # type: ignore[no-untyped-def]
        """Return the matrix product of the square ``a`` with itself."""
        return ops.matmul(a, a)


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time in ms of ``repeats`` calls of ``call``, after one that compiles."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()  # reads its result back, so nothing is left running
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    """Time convolutions and a matrix product, and print milliseconds as one line of JSON."""
    ms.set_context(mode=ms.GRAPH_MODE)
    draw = np.random.default_rng(0)
    x = ms.Tensor(draw.standard_normal((64, 1, 28, 28)).astype(np.float32))
    a = ms.Tensor(draw.standard_normal((256, 256)).astype(np.float32))
    both, product = Gradients(Convolutions()), Product()
    times = {
        "convolution_ms": milliseconds(lambda: both(x)[1][0].asnumpy(), 9),
        "matmul_ms": milliseconds(lambda: product(a).asnumpy(), 15),
    }
    print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
