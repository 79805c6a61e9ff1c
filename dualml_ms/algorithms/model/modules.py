"""Cells that `mindspore.nn` lacks, or whose inputs, outputs or names differ there.

Cells that do not compute in low precision cast their weights to float32: with `zero_lower` the
whole model's weights are stored in low precision. The cast does nothing to float32 weights.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import nn, ops

from dualml.algorithms.communicator import Implementation


def zero_parameter(name: str, *shape: int) -> ms.Parameter:
    """Make a parameter of zeros; a cell that becomes part of another prefixes its name."""
    return ms.Parameter(ops.zeros(shape, ms.float32), name=name)


class LowPrecisionCast(nn.Cell):
    """Round to the nearest number of a low-precision type, ``bf16`` or ``fp16``
    (`dualml.algorithms.precision`), and round the gradient likewise in the backward pass.

    On a CPU MindSpore's only bfloat16 kernels are casts and additions: no product, no convolution,
    not even a reshape. So bfloat16 numbers are stored in float32, and multiplied and added there,
    as PyTorch's kernels do internally.
    """

    def __init__(self, precision: str) -> None:
        super().__init__()
        composed = precision == "bf16" and ms.get_context("device_target") == "CPU"
        self.type = {"bf16": ms.bfloat16, "fp16": ms.float16}[precision]
        self.compute_type = ms.float32 if composed else self.type

    @property
    def precision_policy(self) -> Implementation:
        """Implementation of the type on this device, native or composed of float32 operations, for
        the run's records."""
        if self.compute_type == self.type:
            return Implementation("native", str(self.type))
        return Implementation(
            "composed", f"{self.compute_type}, rounded to {self.type}: no kernels of it on a CPU"
        )

    def construct(self, x):
        """Round ``x`` to the low-precision type; return it in ``compute_type``."""
        return x.astype(self.type).astype(self.compute_type)


class LowPrecisionDense(nn.Dense):
    """`nn.Dense` in low precision; the weights are cast where they are used."""

    def __init__(self, inputs: int, outputs: int, bias: bool, lower: LowPrecisionCast) -> None:
        super().__init__(inputs, outputs, has_bias=bias)
        self.lower = lower

    def construct(self, x):
        """Return ``x`` · Wᵀ + b, (…, inputs) → (…, outputs), with weights and bias in low
        precision."""
        y = self.matmul(x.reshape(-1, x.shape[-1]), self.lower(self.weight))
        y = self.bias_add(y, self.lower(self.bias)) if self.has_bias else y
        return y.reshape(*x.shape[:-1], -1)


class LowPrecisionConv2d(nn.Conv2d):
    """`nn.Conv2d` in low precision; weights and bias are cast by ``lower`` where they are used."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        padding: int,
        bias: bool,
        lower: LowPrecisionCast,
        stride: int = 1,
    ) -> None:
        options = {"pad_mode": "pad", "padding": padding, "has_bias": bias}
        super().__init__(inputs, outputs, kernel, stride, **options)
        self.lower = lower

    def construct(self, x):
        """Convolve images ``x`` (B, C, H, W) with weights and bias in low precision."""
        y = self.conv2d(x, self.lower(self.weight))
        return self.bias_add(y, self.lower(self.bias)) if self.has_bias else y


class Bias(nn.Cell):
    """Add a bias: per channel of images (B, C, H, W), along the last axis of anything else."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = zero_parameter("bias", size)

    def construct(self, x):
        """Return ``x`` plus the float32 bias, in the shape of ``x``."""
        bias = self.bias.astype(ms.float32)
        return x + (bias.reshape(-1, 1, 1) if x.ndim == 4 else bias)


class LowPrecisionBias(Bias):
    """A `Bias` whose parameter is cast to low precision by ``lower`` where it is used."""

    def __init__(self, size: int, lower: LowPrecisionCast) -> None:
        super().__init__(size)
        self.lower = lower

    def construct(self, x):
        """Return ``x`` plus the bias in low precision, in the shape of ``x``."""
        bias = self.lower(self.bias)
        return x + (bias.reshape(-1, 1, 1) if x.ndim == 4 else bias)


class MaxPool2d(nn.Cell):
    """Max pooling over ``kernel`` × ``kernel`` pixels of (B, C, H, W) with a stride; incomplete
    windows at the right and bottom are dropped. Of equal maxima the first, row by row, gets the
    gradient.

    Pooling of 2 × 2 is written out, with the same bits as MindSpore's CPU kernels: forward and
    backward take 0.46 and 0.59 of their time on LeNet's two maps of 64 images.
    """

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.halves, self.halve = (kernel, stride, padding) == (2, 2, 0), Halve()
        mode = {"pad_mode": "pad", "padding": padding} if padding else {"pad_mode": "valid"}
        self.pool = nn.MaxPool2d(kernel_size=kernel, stride=stride, **mode)

    def construct(self, x):
        """Return the maxima of the windows of ``x`` (B, C, H, W): by `Halve` for windows of 2 × 2
        on maps of even size, else by MindSpore's kernel."""
        if self.halves and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
            return self.halve(x)
        return self.pool(x)


class Halve(nn.Cell):
    """Max pooling of 2 × 2 pixels for maps of even height and width: left or right, then top or
    bottom.

    Pairs are transposed so that all left and all right pixels are contiguous.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sides, self.rows = ops.Split(0, 2), ops.Split(1, 2)

    def parts(self, x):
        """Return four tensors: the left and the right pixels of all pairs, then the top and the
        bottom ones of the larger of each."""
        left, right = self.sides(x.reshape(-1, 2).swapaxes(0, 1))
        top, bottom = self.rows(ops.maximum(left, right).reshape(-1, x.shape[3]))
        return left, right, top, bottom

    def construct(self, x):
        """Return the maxima of 2 × 2 pixels of ``x``, (B, C, H, W) → (B, C, H/2, W/2)."""
        b, c, h, w = x.shape
        _, _, top, bottom = self.parts(x)
        return ops.maximum(top, bottom).reshape(b, c, h // 2, w // 2)

    def bprop(self, x, out, gradient):
        """Return a tuple with the gradient of ``x``: each entry of ``gradient`` at the pixel that
        is the maximum of its window, the first of equal ones; zero elsewhere."""
        left, right, top, bottom = self.parts(x)
        gradient = gradient.reshape(top.shape)
        upper = gradient * (top >= bottom).astype(gradient.dtype)
        gradient = ops.cat((upper, gradient - upper), 1).reshape(left.shape)
        first = gradient * (left >= right).astype(gradient.dtype)
        pairs = ops.cat((first, gradient - first), 0)
        return (pairs.swapaxes(0, 1).reshape(x.shape),)


class Embedding(nn.Cell):
    """Look up rows of ``weight``; tokens outside of [first, first + words) give zeros and no
    gradient."""

    def __init__(self, words: int, features: int, first: int) -> None:
        super().__init__()
        self.weight = zero_parameter("weight", words, features)
        self.words, self.first = words, first

    def construct(self, tokens):
        """Return the float32 rows (…, D) of integer ``tokens`` (…); zeros for tokens outside of the
        range."""
        row = tokens - self.first
        here = ops.logical_and(row >= 0, row < self.words)
        rows = ops.gather(self.weight.astype(ms.float32), row * here.astype(ms.int32), 0)
        return rows * here.astype(ms.float32).expand_dims(-1)


class LayerNorm(nn.LayerNorm):
    """Layer normalization with the parameter names ``weight`` and ``bias``, which weight decay does
    not exempt.

    As a subclass of MindSpore's it stays in float32 at level O2 of mixed precision.
    """

    def __init__(self, features: int, eps: float) -> None:
        nn.Cell.__init__(self)
        self.weight, self.bias = (
            zero_parameter("weight", features),
            zero_parameter("bias", features),
        )
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)

    def construct(self, x):
        """Normalize ``x`` (…, D) to mean 0 and variance 1 along the last axis; multiply by
        ``weight`` and add ``bias``, in float32."""
        y, _, _ = self.norm(x, self.weight.astype(ms.float32), self.bias.astype(ms.float32))
        return y

    def extend_repr(self):
        """Return an empty description of the settings for ``repr``."""
        return ""  # MindSpore's reads attributes that do not exist here


class Attention(nn.Cell):
    """Multi-head attention between all positions (B, T, 3·D) → (B, T, D), without its linear
    layers; ``causal``: no position sees later ones. Written out with the operations of
    `dualml_torch`."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def construct(self, x, here=None):
        """Return the attention outputs (B, T, D) of ``x`` (B, T, 3·D), which holds queries, keys
        and values. Later keys get no weight if the layer is causal, nor do keys where ``here`` (B,
        T) is false; None: all count."""
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
    """Add learned position embeddings: (B, T, D) + ``weight`` (T, D)."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        self.weight = zero_parameter("weight", length, features)

    def construct(self, x):
        """Return ``x`` (B, T, D) plus the position embeddings."""
        return x + self.weight.astype(ms.float32)


class Rows(nn.Cell):
    """Treat the rows of an image as a sequence, (B, 1, H, W) → (B, H, W)."""

    def construct(self, x):
        """Remove the channel axis of ``x``, (B, 1, H, W) → (B, H, W)."""
        return x.squeeze(1)


class MeanPool(nn.Cell):
    """Average over the positions that hold a token, by the mask ``here``, (B, T, D) → (B, D)."""

    def construct(self, x, here=None):
        """Return the mean (B, D) of ``x`` (B, T, D) over the positions where ``here`` (B, T) is
        true, nan where none is; None: over all positions."""
        if here is None:
            return x.mean(1)
        tokens = here.astype(ms.float32)
        share = tokens / tokens.sum(1, keepdims=True)
        return (x * share.expand_dims(-1)).sum(1)


class First(nn.Cell):
    """Take the first position, (B, T, D) → (B, D)."""

    def construct(self, x):
        """Return the values (B, D) of the first position of ``x`` (B, T, D)."""
        return x[:, 0]
