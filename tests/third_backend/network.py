"""The layers of `dualml.algorithms.model` and the losses, implemented on `values.Value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import erf

from dualml.algorithms.model import decoder, vision
from dualml.algorithms.model import layers as spec
from dualml.algorithms.model.spec import canonical_parameter_names
from third_backend.values import Array, Value, lift, stack

Own = Mapping[str, Value]
#: Mask of the positions that hold a token, for layers that skip padding.
HERE = "here"
#: Whether batch normalisation uses the batch's statistics and updates the running ones.
LEARNING = "learning"


@singledispatch
def apply(layer: Any, x: Any, own: Own) -> Value:
    """Return a layer's output for the batch ``x``; ``own`` holds the layer's parameters."""
    raise NotImplementedError(f"single has no layer {type(layer).__name__}")


@apply.register
def _(layer: spec.Linear, x: Value, own: Own) -> Value:
    return biased(x @ own["weight"].transpose(1, 0), layer.bias, own)


def biased(y: Value, there: bool, own: Own) -> Value:
    """Add the bias if the layer has one."""
    return y + own["bias"] if there else y


@apply.register
def _(layer: spec.Conv2d, x: Value, own: Own) -> Value:
    """Convolve with one matrix product per kernel position."""
    n, k, step = layer.padding, layer.kernel, layer.stride
    image = padded(x, n).transpose(0, 2, 3, 1)
    h, w = (side - k + 1 for side in image.shape[1:3])  # before the stride leaves places out
    weight, total = own["weight"].transpose(2, 3, 1, 0), lift(0.0)
    for i in range(k):
        for j in range(k):
            total = total + image[:, i : i + h : step, j : j + w : step] @ weight[i, j]
    return biased(total, layer.bias, own).transpose(0, 3, 1, 2)


def padded(x: Value, n: int, border: float = 0.0) -> Value:
    if not n:
        return x
    wide = np.pad(x.data, ((0, 0), (0, 0), (n, n), (n, n)), constant_values=border)
    return Value(wide, [(x, lambda g: g[:, :, n:-n, n:-n])])


@apply.register
def _(layer: spec.Bias, x: Value, own: Own) -> Value:
    return x + (own["bias"].reshape(-1, 1, 1) if len(x.shape) == 4 else own["bias"])


@apply.register
def _(layer: spec.MaxPool2d, x: Value, own: Own) -> Value:
    k, image = layer.kernel, padded(x, layer.padding, -np.inf)
    b, c, *sides = image.shape
    h, w = ((side - k) // layer.step + 1 for side in sides)
    rows, columns = (layer.step * np.arange(n)[:, None] + np.arange(k) for n in (h, w))
    windows = image[:, :, rows[:, None, :, None], columns[None, :, None, :]]
    flat = windows.reshape(b * c * h * w, k * k)
    return flat[np.arange(len(flat.data)), flat.data.argmax(axis=1)].reshape(b, c, h, w)


@apply.register
def _(layer: vision.BatchNorm2d, x: Value, own: Own) -> Value:
    mean, variance = (own[leaf].data.reshape(-1, 1, 1) for leaf in layer.buffers())
    if not own[LEARNING].data:
        return scaled_channels(x - mean, Value(variance), layer.eps, own)
    count = x.data.size // layer.channels
    average = x.mean(0).mean(2).mean(3)
    centred = x - average
    spread = (centred * centred).mean(0).mean(2).mean(3)
    for running, now in ((mean, average.data[0]), (variance, spread.data[0] * count / (count - 1))):
        running += np.float32(layer.momentum) * (now - running)  # where the training keeps it
    return scaled_channels(centred, spread, layer.eps, own)


def scaled_channels(centred: Value, variance: Value, eps: float, own: Own) -> Value:
    weight, bias = (own[leaf].reshape(-1, 1, 1) for leaf in ("weight", "bias"))
    return centred * (variance + eps).power(-0.5) * weight + bias


@apply.register
def _(layer: vision.GlobalAvgPool2d, x: Value, own: Own) -> Value:
    return x.mean(2).mean(3).reshape(*x.shape[:2])


@apply.register
def _(layer: spec.ReLU, x: Value, own: Own) -> Value:
    return x.relu()


@apply.register
def _(layer: spec.Tanh, x: Value, own: Own) -> Value:
    return x.tanh()


@apply.register
def _(layer: spec.GELU, x: Value, own: Own) -> Value:
    below = (1 + erf(x.data / np.sqrt(2))) / 2
    slope = np.float32(below + x.data * np.exp(-(x.data**2) / 2) / np.sqrt(2 * np.pi))
    return Value(np.float32(x.data * below), [(x, lambda g: g * slope)])


@apply.register
def _(layer: spec.Flatten, x: Value, own: Own) -> Value:
    return x.reshape(x.shape[0], -1)


@apply.register
def _(layer: spec.Embedding, tokens: Array, own: Own) -> Value:
    row = tokens - layer.first
    there = (row >= 0) & (row < layer.words)
    return own["weight"][np.where(there, row, 0)] * np.float32(there)[..., None]


@apply.register
def _(layer: spec.LSTM, x: Value, own: Own) -> Value:
    h = c = Value(np.zeros((x.shape[0], layer.hidden)))
    into, over = own["weight_ih_l0"].transpose(1, 0), own["weight_hh_l0"].transpose(1, 0)
    states = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ into + own["bias_ih_l0"] + h @ over + own["bias_hh_l0"]
        i, f, g, o = (gates[:, n * layer.hidden : (n + 1) * layer.hidden] for n in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return stack(states, 1)


@apply.register
def _(layer: spec.GRU, x: Value, own: Own) -> Value:
    h = Value(np.zeros((x.shape[0], layer.hidden)))
    into, over = own["weight_ih_l0"].transpose(1, 0), own["weight_hh_l0"].transpose(1, 0)
    states = []
    for t in range(x.shape[1]):
        fed, own_h = x[:, t] @ into + own["bias_ih_l0"], h @ over + own["bias_hh_l0"]
        thirds = [slice(n * layer.hidden, (n + 1) * layer.hidden) for n in range(3)]
        r, z = ((fed[:, part] + own_h[:, part]).sigmoid() for part in thirds[:2])
        n = (fed[:, thirds[2]] + r * own_h[:, thirds[2]]).tanh()
        h = n + z * (h + n * -1.0)
        states.append(h)
    return stack(states, 1)


@apply.register
def _(layer: spec.RNN, x: Value, own: Own) -> Value:
    h = Value(np.zeros((x.shape[0], layer.hidden)))
    into, over = own["weight_ih_l0"].transpose(1, 0), own["weight_hh_l0"].transpose(1, 0)
    states = []
    for t in range(x.shape[1]):
        gate = x[:, t] @ into + own["bias_ih_l0"] + h @ over + own["bias_hh_l0"]
        h = gate.tanh() if layer.nonlinearity == "tanh" else gate.relu()
        states.append(h)
    return stack(states, 1)


@apply.register
def _(layer: spec.LayerNorm, x: Value, own: Own) -> Value:
    centred = x - x.mean(-1)
    scale = ((centred * centred).mean(-1) + layer.eps).power(-0.5)
    return centred * scale * own["weight"] + own["bias"]


@apply.register
def _(layer: spec.Attention, x: Value, own: Own) -> Value:
    b, length, width = x.shape
    heads = x.reshape(b, length, 3, layer.heads, -1).transpose(2, 0, 3, 1, 4)
    q, k, v = (heads[n] for n in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) * (1 / np.sqrt(q.shape[-1]))
    if layer.causal:
        scores = scores + np.triu(np.full((length, length), -1e30, np.float32), 1)
    if layer.masked:
        scores = scores + np.where(own[HERE].data[:, None, None], 0, np.float32(-1e30))
    shares = softmax(scores)
    return (shares @ v).transpose(0, 2, 1, 3).reshape(b, length, width // 3)


def softmax(x: Value) -> Value:
    e = (x - x.data.max(axis=-1, keepdims=True)).exp()
    return e * e.sum(-1).power(-1)


@apply.register
def _(layer: spec.Position, x: Value, own: Own) -> Value:
    return x + own["weight"]


@apply.register
def _(layer: spec.Rows, x: Value, own: Own) -> Value:
    return x[:, 0]


@apply.register
def _(layer: spec.MeanPool, x: Value, own: Own) -> Value:
    if not layer.masked:
        return x.mean(1)[:, 0]
    here = own[HERE].data
    return (x * np.float32(here / here.sum(1, keepdims=True))[..., None]).sum(1)[:, 0]


@apply.register
def _(layer: spec.First, x: Value, own: Own) -> Value:
    return x[:, 0]


@apply.register
def _(layer: decoder.RMSNorm, x: Value, own: Own) -> Value:
    return x * ((x * x).mean(-1) + layer.eps).power(-0.5) * own["weight"]


@apply.register
def _(layer: decoder.SwiGLU, x: Value, own: Own) -> Value:
    half = x.shape[-1] // 2
    gate, up = x[..., :half], x[..., half:]
    return gate * gate.sigmoid() * up


@apply.register
def _(layer: decoder.GroupedAttention, x: Value, own: Own) -> Value:
    """Compute causal grouped-query attention, head by head."""
    b, length, _ = x.shape
    parts = x.reshape(b, length, -1, layer.width).transpose(2, 0, 1, 3)
    later = np.triu(np.full((length, length), -1e30, np.float32), 1)
    heads = []
    for head in range(layer.heads):
        group = head // layer.heads_per_group
        first = group * (layer.heads_per_group + 2)
        q, k, v = (
            parts[first + n]
            for n in (
                head % layer.heads_per_group,
                layer.heads_per_group,
                layer.heads_per_group + 1,
            )
        )
        if layer.base:
            q, k = rotate_pairs(layer, q), rotate_pairs(layer, k)
        scores = q @ k.transpose(0, 2, 1) * (1 / np.sqrt(layer.width)) + later
        heads.append(softmax(scores) @ v)
    return stack(heads, 2).reshape(b, length, -1)


def rotate_pairs(layer: decoder.GroupedAttention, x: Value) -> Value:
    """Apply rotary position embedding: entry i times its cosine, plus the paired entry times its
    signed sine."""
    cos, sin = (np.float32(np.concatenate([a, a], 1)) for a in decoder.rotary_cos_sin(layer))
    half = layer.width // 2
    other = np.roll(np.arange(layer.width), half)
    sign = np.float32(np.where(np.arange(layer.width) < half, -1, 1))
    return x * cos + x[..., other] * (sin * sign)


def forward(
    layers: Sequence[tuple[str, spec.Layer]],
    own: Own,
    values: Sequence[Any],
    masks: Sequence[Array] = (),
    learning: bool = False,
) -> tuple[list[Any], dict[str, Any]]:
    """Run the layers on the stack of values from the layers before; return the new stack and every
    layer's output.

    Args:
        masks: the masks of the Dropout layers, in order; without them Dropout is the identity.
        learning: whether batch normalisation uses and records the batch's statistics.
    """
    *kept, x = values
    outputs, waiting, tokens = {}, iter(masks), x
    for name, layer in layers:
        if isinstance(layer, spec.Branch):
            kept.append(x)
        elif isinstance(layer, spec.Merge):
            x = kept.pop() + x
        elif isinstance(layer, spec.Swap):
            kept[-1], x = x, kept[-1]
        elif isinstance(layer, spec.Dropout):
            x = x * next(waiting) if masks else x
        else:
            given = {
                leaf: own[full] for leaf, full in canonical_parameter_names(name, layer).items()
            }
            if layer.needs_padding_mask:
                given[HERE] = Value(np.float32(tokens != spec.PADDING))
            if layer.buffers():
                given |= {leaf: own[f"{name}.{leaf}"] for leaf in layer.buffers()}
                given[LEARNING] = Value(learning)
            x = apply(layer, x, given)
        outputs[name] = x
    return [*kept, x], outputs


def cross_entropy(logits: Value, labels: Array) -> Value:
    """Return the mean cross-entropy of ``logits`` (…, classes) for integer labels ``y``."""
    flat = logits.reshape(-1, logits.shape[-1])
    shifted = flat - flat.data.max(axis=1, keepdims=True)
    picked = shifted[np.arange(labels.size), labels.ravel()].reshape(-1, 1)
    return (shifted.exp().sum(1).log() - picked).mean(0).reshape()


def mse(logits: Value, labels: Array) -> Value:
    """Return the mean squared error of ``logits`` (…, classes) against one-hot labels."""
    error = logits - np.eye(logits.shape[-1], dtype=np.float32)[labels]
    return (error * error).reshape(-1).mean(0).reshape()


LOSSES = {"cross_entropy": cross_entropy, "mse": mse}
