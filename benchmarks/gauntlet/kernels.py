"""Operators of ``mindspore.mint`` that a CPU lacks, composed of those that it has.

Rows that need them judge the port's own code, not MindSpore's kernels.
"""

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import mint, ops
from mindspore.mint.nn import functional

Tensor = ms.Tensor


def arange(start: int, end: int | None = None, step: int = 1, *, dtype: Any = None) -> Tensor:
    start, end = (0, start) if end is None else (start, end)
    values = Tensor(np.arange(int(start), int(end), int(step)))
    return values if dtype is None else values.astype(dtype)


def linspace(start: float, end: float, steps: int, *, dtype: Any = None) -> Tensor:
    return Tensor(np.linspace(start, end, steps), dtype or ms.float32)


def randn(*size: int, dtype: Any = None) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(size), dtype or ms.float32)


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    value = fill_value.asnumpy() if isinstance(fill_value, Tensor) else fill_value
    return Tensor(np.full(size, value), dtype or ms.float32)


def cumsum(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return ops.cumsum(input.astype(ms.int32 if input.dtype == ms.bool_ else input.dtype), dim)


def rand(*size: Any, dtype: Any = None) -> Tensor:
    shape = tuple(size[0]) if size and isinstance(size[0], list | tuple) else size
    return ops.rand(*(shape or (1,)), dtype=dtype).reshape(shape)


def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return x * beta + ops.matmul(a, b) * alpha


def embedding(input: Tensor, weight: Tensor, *ignored: Any, **other: Any) -> Tensor:
    return ops.gather(weight, input, 0)


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    axis = -len(tuple(normalized_shape))
    return ops.LayerNorm(axis, axis, eps)(input, weight, bias)[0]


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    scale = ops.rsqrt(ops.mean(x * x, -1, keep_dims=True) + epsilon)
    return x * scale * gamma, scale


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    mode = "same" if padding == "same" else "pad"
    return ops.conv2d(
        input, weight, bias, stride, mode, 0 if mode == "same" else padding, dilation, groups
    )


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return ops.dropout(input, p, training)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    return ops.gelu(input, approximate)


def keep_tensor(tensor: Tensor, *ignored: Any, **other: Any) -> Tensor:
    """Replace initializers of weights, because the other side's weights are loaded later."""
    return tensor


def install() -> None:
    for module, functions in (
        (mint, (arange, linspace, randn, full, cumsum, rand, addmm)),
        (functional, (embedding, layer_norm, conv2d, gelu, dropout)),
        (ops, (rms_norm,)),
    ):
        for function in functions:
            setattr(module, function.__name__, function)
    mint.nn.Embedding.construct = lambda self, x: embedding(x, self.weight)
    mint.nn.LayerNorm.construct = lambda self, x: layer_norm(
        x, self.normalized_shape, self.weight, self.bias, self.eps
    )
    mint.nn.Conv2d.construct = lambda self, x: conv2d(
        x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
    )
    mint.nn.Dropout.construct = lambda self, x: dropout(x, self.p, self.training)
    mint.nn.GELU.construct = lambda self, x: gelu(x, approximate=self.approximate)
    for name in ("zero_", "fill_", "normal_", "uniform_", "set_data"):
        setattr(Tensor, name, keep_tensor)
