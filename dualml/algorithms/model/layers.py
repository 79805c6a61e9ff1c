"""Layers of the neutral model language: what each computes, its parameters and its shapes.

Shapes are those of one sample, without the batch axis. A model is a flat sequence of named layers.
The value that runs through it is a stack, of which every layer but `Branch`, `Merge` and `Swap`
sees only the top: a residual connection is ``Branch, …, Merge``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from dualml.algorithms.model.base import DtypePolicy, Layer, Shape, check_input_shape
from dualml.algorithms.model.recurrent import GRU as GRU
from dualml.algorithms.model.recurrent import LSTM as LSTM
from dualml.algorithms.model.recurrent import RNN as RNN
from dualml.algorithms.model.recurrent import RecurrentLayer as RecurrentLayer
from dualml.common.errors import UserError

#: Token of an empty position, after the end of a shorter sentence.
PADDING = 0


@dataclass(frozen=True)
class Linear(Layer):
    """y = x·Wᵀ + b along the last axis: (…, inputs) → (…, outputs).

    ``weight`` (outputs, inputs), ``bias`` (outputs,). ``init_range`` above 0: the weight starts
    uniform in ± ``init_range``, and the bias at zero.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT

    inputs: int
    outputs: int
    bias: bool = True
    init_range: float = 0.0

    def parameters(self) -> dict[str, Shape]:
        """Return the shapes of ``weight``, (outputs, inputs), and of ``bias``, (outputs,), if it
        has one."""
        return {"weight": (self.outputs, self.inputs), **_bias(self.outputs, self.bias)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` with ``outputs`` as its last axis; raise `UserError` unless that axis
        has ``inputs`` entries."""
        check_input_shape(shape[-1:] == (self.inputs,), f"Linear takes (…, {self.inputs})", shape)
        return (*shape[:-1], self.outputs)


@dataclass(frozen=True)
class Conv2d(Layer):
    """Cross-correlation with stride s and zero padding p: (C, H, W) →
    (C', ⌊(H+2p−k)/s⌋+1, ⌊(W+2p−k)/s⌋+1).

    ``weight`` (outputs, inputs, kernel, kernel), ``bias`` (outputs,).
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT

    inputs: int
    outputs: int
    kernel: int
    padding: int = field(default=0, metadata={"always described": True})
    bias: bool = True
    stride: int = 1

    def parameters(self) -> dict[str, Shape]:
        """Return the shapes of ``weight``, (outputs, inputs, kernel, kernel), and of ``bias``,
        (outputs,), if it has one."""
        window = (self.kernel, self.kernel)
        return {"weight": (self.outputs, self.inputs, *window), **_bias(self.outputs, self.bias)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return (outputs, H', W') for an image (inputs, H, W); raise `UserError` for another
        shape, or an image smaller than the kernel."""
        fits = len(shape) == 3 and shape[0] == self.inputs
        check_input_shape(fits, f"Conv2d takes ({self.inputs}, H, W)", shape)
        out = (
            self.outputs,
            *strided_output_size(shape[1:], self.kernel, self.stride, self.padding),
        )
        check_input_shape(
            min(out) >= 1, f"Conv2d with kernel {self.kernel} takes larger images", shape
        )
        return out


@dataclass(frozen=True)
class Bias(Layer):
    """x + b with ``bias`` (size,): one number per channel of an image, else along the last axis."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PROMOTE

    size: int

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of ``bias``, (size,)."""
        return {"bias": (self.size,)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` unless the channels of an image, or else
        the last axis, have ``size`` entries."""
        axis = shape[:1] if len(shape) == 3 else shape[-1:]
        check_input_shape(
            axis == (self.size,), f"Bias takes ({self.size}, H, W) or (…, {self.size})", shape
        )
        return shape


@dataclass(frozen=True)
class RowBias(Bias):
    """Bias of a row-parallel layer of products, added once to the sum of the terms that the ranks
    computed."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT


@dataclass(frozen=True)
class MaxPool2d(Layer):
    """Maximum over k×k windows with a stride, with −∞ as padding; a remainder at the right and at
    the bottom is dropped. ``stride`` 0 means k: windows side by side."""

    kernel: int
    stride: int = 0
    padding: int = 0

    @property
    def step(self) -> int:
        """Pixels between neighbouring windows."""
        return self.stride or self.kernel

    def output_shape(self, shape: Shape) -> Shape:
        """Return (C, H', W') for an image (C, H, W); raise `UserError` for another shape, or a
        padded image smaller than a window."""
        fits = len(shape) == 3 and min(shape[1:]) + 2 * self.padding >= self.kernel
        check_input_shape(fits, f"MaxPool2d takes (C, H, W) of {self.kernel} and more", shape)
        return (shape[0], *strided_output_size(shape[1:], self.kernel, self.step, self.padding))


@dataclass(frozen=True)
class ReLU(Layer):
    """max(x, 0), with derivative 0 at 0."""


@dataclass(frozen=True)
class GELU(Layer):
    """x · Φ(x) with the distribution function of the normal distribution, not its approximation.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)", eq. 1.
    """


@dataclass(frozen=True)
class Tanh(Layer):
    """The hyperbolic tangent tanh(x), elementwise."""


@dataclass(frozen=True)
class Flatten(Layer):
    """Reshape a sample to one axis: (…) → (product,)."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return the number of elements of ``shape`` as the only axis."""
        return (math.prod(shape),)


@dataclass(frozen=True)
class Embedding(Layer):
    """Look up tokens, integers of any shape (…) → (…, features): row ``token - first`` of
    ``weight``.

    ``weight`` (words, features), possibly of part of a vocabulary: a token without a row gives
    zeros. ``init_range`` above 0: it starts uniform in ± ``init_range``.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    words: int
    features: int
    first: int = 0
    init_range: float = 0.0

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of ``weight``, (words, features)."""
        return {"weight": (self.words, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` with a further axis of ``features`` entries."""
        return (*shape, self.features)


@dataclass(frozen=True)
class LayerNorm(Layer):
    """(x − mean) / √(variance + eps) · w + b along the last axis, with the biased variance.

    ``weight`` and ``bias`` (features,). Source: Ba, Kiros and Hinton 2016, "Layer Normalization".
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    features: int
    eps: float = 1e-5

    def parameters(self) -> dict[str, Shape]:
        """Return the shapes of ``weight`` and ``bias``, (features,) each."""
        return {"weight": (self.features,), "bias": (self.features,)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` unless its last axis has ``features``
        entries."""
        check_input_shape(
            shape[-1:] == (self.features,), f"LayerNorm takes (…, {self.features})", shape
        )
        return shape


@dataclass(frozen=True)
class Dropout(Layer):
    """Zero with probability ``rate``, else x / (1 − rate); the identity in evaluation.

    `dualml.algorithms.model.dropout` draws the mask for all backends. Source: Srivastava et al.
    2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 15.
    """

    rate: float

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` if ``rate`` is outside of [0, 1)."""
        if not 0 <= self.rate < 1:
            raise UserError(f"Dropout: rate must be in [0, 1); received {self.rate}")
        return shape


@dataclass(frozen=True)
class Attention(Layer):
    """softmax(q·kᵀ/√d)·v for each head: (T, 3·D), q, k and v side by side, → (T, D).

    A head has d = D / heads neighbouring entries of each; ``causal``: no position attends to a
    later one; ``masked``: none attends to one that holds `PADDING`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", eq. 1 and sec. 3.2.2.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT
    blocks: ClassVar[int] = 3

    heads: int
    causal: bool = False
    masked: bool = False

    def output_shape(self, shape: Shape) -> Shape:
        """Return (T, D) for queries, keys and values (T, 3·D); raise `UserError` for another shape,
        or if ``heads`` does not divide D."""
        fits = len(shape) == 2 and shape[1] % (3 * self.heads) == 0
        check_input_shape(fits, f"Attention takes (T, a multiple of {3 * self.heads})", shape)
        return (shape[0], shape[1] // 3)


@dataclass(frozen=True)
class Position(Layer):
    """x + w, a learned vector for each position: ``weight`` (length, features)."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PROMOTE

    length: int
    features: int

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of ``weight``, (length, features)."""
        return {"weight": (self.length, self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` unless it is (length, features)."""
        takes = (self.length, self.features)
        check_input_shape(shape == takes, f"Position takes {takes}", shape)
        return shape


@dataclass(frozen=True)
class Rows(Layer):
    """Turn a grey image into the sequence of its rows: (1, H, W) → (H, W)."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return (H, W) for a grey image (1, H, W); raise `UserError` for another shape."""
        check_input_shape(len(shape) == 3 and shape[0] == 1, "Rows takes (1, H, W)", shape)
        return shape[1:]


@dataclass(frozen=True)
class MeanPool(Layer):
    """Mean over the positions of a sequence: (T, D) → (D,); ``masked``: over those that hold a
    token other than `PADDING`."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    masked: bool = False

    def output_shape(self, shape: Shape) -> Shape:
        """Return (D,) for a sequence (T, D); raise `UserError` for another shape."""
        check_input_shape(len(shape) == 2, "MeanPool takes (T, D)", shape)
        return shape[1:]


@dataclass(frozen=True)
class First(Layer):
    """The first position of a sequence, which represents all of it: (T, D) → (D,).

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", sec. 3.
    """

    def output_shape(self, shape: Shape) -> Shape:
        """Return (D,) for a sequence (T, D); raise `UserError` for another shape."""
        check_input_shape(len(shape) == 2, "First takes (T, D)", shape)
        return shape[1:]


@dataclass(frozen=True)
class Branch(Layer):
    """Start of a residual connection: a copy of the top value is kept on the stack."""


@dataclass(frozen=True)
class Merge(Layer):
    """End of a residual connection: the value kept last is added to the top (He et al. 2016, "Deep
    Residual Learning", eq. 1)."""

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PROMOTE


@dataclass(frozen=True)
class Swap(Layer):
    """Exchange the top value and the one kept last: between `Branch` and `Merge`, the layers after
    it are those of the shortcut."""


def strided_output_size(size: Shape, kernel: int, stride: int, padding: int) -> Shape:
    """Return the number of windows along each axis of ``size`` (height, width), in pixels; a
    remainder that fills no window is dropped."""
    return tuple((side + 2 * padding - kernel) // stride + 1 for side in size)


LAYERS: dict[str, type[Layer]] = {
    kind.__name__: kind
    for kind in (*Layer.__subclasses__(), LSTM, GRU, RNN)
    if kind is not RecurrentLayer
}


def _bias(size: int, there: bool) -> dict[str, Shape]:
    """Return the shape of ``bias``, (size,), by its name; an empty dict unless ``there``."""
    return {"bias": (size,)} if there else {}
