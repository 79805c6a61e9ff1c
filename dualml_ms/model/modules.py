"""Cells that `mindspore.nn` lacks, or that take, give or name something else there.

Those that do not compute in a lower type cast their weights to float32: with `zero_lower` the whole
model's are held in one. To weights of float32 it does nothing.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import nn, ops

from dualml.communicator import How


def parameter(name: str, *shape: int) -> ms.Parameter:
    """Zeros; a cell's name is put before the parameter's where it becomes a part of another."""
    return ms.Parameter(ops.zeros(shape, ms.float32), name=name)


class Lower(nn.Cell):
    """To the nearest number of a lower type (`dualml.precision`), and its gradient, too.

    On a CPU MindSpore has no kernel of bfloat16 but for casts and additions: no product, no
    convolution, not even a reshape. So the numbers of that type are held in float32, and multiplied
    and added up there, as PyTorch's kernels for it do inside.
    """

    def __init__(self, precision: str) -> None:
        super().__init__()
        composed = precision == "bf16" and ms.get_context("device_target") == "CPU"
        self.type = {"bf16": ms.bfloat16, "fp16": ms.float16}[precision]
        self.held = ms.float32 if composed else self.type

    @property
    def how(self) -> How:
        """For the records."""
        if self.held == self.type:
            return How("native", str(self.type))
        return How("composed", f"{self.held}, rounded to {self.type}: no kernels of it on a CPU")

    def construct(self, x):
        return x.astype(self.type).astype(self.held)


class LowerDense(nn.Dense):
    """`nn.Dense` of a lower type; the weights are cast where they are used."""

    def __init__(self, inputs: int, outputs: int, bias: bool, lower: Lower) -> None:
        super().__init__(inputs, outputs, has_bias=bias)
        self.lower = lower

    def construct(self, x):
        y = self.matmul(x.reshape(-1, x.shape[-1]), self.lower(self.weight))
        y = self.bias_add(y, self.lower(self.bias)) if self.has_bias else y
        return y.reshape(*x.shape[:-1], -1)


class LowerConv2d(nn.Conv2d):
    """`nn.Conv2d` of a lower type."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        padding: int,
        bias: bool,
        lower: Lower,
        stride: int = 1,
    ) -> None:
        options = {"pad_mode": "pad", "padding": padding, "has_bias": bias}
        super().__init__(inputs, outputs, kernel, stride, **options)
        self.lower = lower

    def construct(self, x):
        y = self.conv2d(x, self.lower(self.weight))
        return self.bias_add(y, self.lower(self.bias)) if self.has_bias else y


class Bias(nn.Cell):
    """x + b: per channel of images (B, C, H, W), along the last axis of anything else."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = parameter("bias", size)

    def construct(self, x):
        bias = self.bias.astype(ms.float32)
        return x + (bias.reshape(-1, 1, 1) if x.ndim == 4 else bias)


class LowerBias(Bias):
    """`Bias` of a lower type."""

    def __init__(self, size: int, lower: Lower) -> None:
        super().__init__(size)
        self.lower = lower

    def construct(self, x):
        bias = self.lower(self.bias)
        return x + (bias.reshape(-1, 1, 1) if x.ndim == 4 else bias)


class MaxPool2d(nn.Cell):
    """The largest of each ``kernel`` × ``kernel`` pixels of (B, C, H, W), every ``stride`` pixels;
    what is left over at the right and at the bottom is passed over. Of equal ones the first, row by
    row, has the gradient.

    Halving is written out, with the bits of MindSpore's kernels for a CPU: forward and backward
    take 0.46 and 0.59 of their time on LeNet's two maps of 64 images.
    """

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.halves, self.halve = (kernel, stride, padding) == (2, 2, 0), Halve()
        mode = {"pad_mode": "pad", "padding": padding} if padding else {"pad_mode": "valid"}
        self.pool = nn.MaxPool2d(kernel_size=kernel, stride=stride, **mode)

    def construct(self, x):
        if self.halves and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
            return self.halve(x)
        return self.pool(x)


class Halve(nn.Cell):
    """`MaxPool2d` of 2 × 2 pixels of maps of even height and width: left or right, top or bottom.

    A column of pairs is transposed, so that all lefts, and all rights, lie side by side.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sides, self.rows = ops.Split(0, 2), ops.Split(1, 2)

    def parts(self, x):
        """Lefts and rights of all pairs, and then of the larger ones tops and bottoms."""
        left, right = self.sides(x.reshape(-1, 2).swapaxes(0, 1))
        top, bottom = self.rows(ops.maximum(left, right).reshape(-1, x.shape[3]))
        return left, right, top, bottom

    def construct(self, x):
        b, c, h, w = x.shape
        _, _, top, bottom = self.parts(x)
        return ops.maximum(top, bottom).reshape(b, c, h // 2, w // 2)

    def bprop(self, x, out, gradient):
        left, right, top, bottom = self.parts(x)
        gradient = gradient.reshape(top.shape)
        upper = gradient * (top >= bottom).astype(gradient.dtype)
        gradient = ops.cat((upper, gradient - upper), 1).reshape(left.shape)
        first = gradient * (left >= right).astype(gradient.dtype)
        pairs = ops.cat((first, gradient - first), 0)
        return (pairs.swapaxes(0, 1).reshape(x.shape),)


class Embedding(nn.Cell):
    """Rows of ``weight``, zeros for tokens outside of [first, first + words): no gradient then."""

    def __init__(self, words: int, features: int, first: int) -> None:
        super().__init__()
        self.weight = parameter("weight", words, features)
        self.words, self.first = words, first

    def construct(self, tokens):
        row = tokens - self.first
        here = ops.logical_and(row >= 0, row < self.words)
        rows = ops.gather(self.weight.astype(ms.float32), row * here.astype(ms.int32), 0)
        return rows * here.astype(ms.float32).expand_dims(-1)


class LayerNorm(nn.LayerNorm):
    """With the names ``weight`` and ``bias``, which no weight decay passes over.

    As one of MindSpore's own it stays in float32 at level O2 of its mixed precision.
    """

    def __init__(self, features: int, eps: float) -> None:
        nn.Cell.__init__(self)
        self.weight, self.bias = parameter("weight", features), parameter("bias", features)
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)

    def construct(self, x):
        y, _, _ = self.norm(x, self.weight.astype(ms.float32), self.bias.astype(ms.float32))
        return y

    def extend_repr(self):
        return ""  # MindSpore's asks for what was not made


class Attention(nn.Cell):
    """Written out, as for PyTorch."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def construct(self, x, here=None):
        b, length, width = x.shape
        parts = x.reshape(b, length, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]  # B heads T d each
        scores = ops.matmul(q, k.swapaxes(2, 3)).astype(ms.float32)
        scores = scores / math.sqrt(width // 3 // self.heads)
        if self.causal:
            place = ops.arange(length)
            scores = ops.where(place.reshape(-1, 1) >= place, scores, -1e30)
        if here is not None:
            scores = ops.where(here.reshape(b, 1, 1, length), scores, -1e30)
        y = ops.matmul(ops.softmax(scores, -1).astype(v.dtype), v)
        return y.swapaxes(1, 2).reshape(b, length, -1)


class Position(nn.Cell):
    """(B, T, D) + ``weight`` (T, D)."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        self.weight = parameter("weight", length, features)

    def construct(self, x):
        return x + self.weight.astype(ms.float32)


class Rows(nn.Cell):
    """(B, 1, H, W) → (B, H, W)."""

    def construct(self, x):
        return x.squeeze(1)


class MeanPool(nn.Cell):
    """(B, T, D) → (B, D), of the positions that are ``here``."""

    def construct(self, x, here=None):
        if here is None:
            return x.mean(1)
        tokens = here.astype(ms.float32)
        share = tokens / tokens.sum(1, keepdims=True)
        return (x * share.expand_dims(-1)).sum(1)


class First(nn.Cell):
    """(B, T, D) → (B, D)."""

    def construct(self, x):
        return x[:, 0]
