"""The layers and losses of dualml's models in JAX, and a model's loss with its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dualml.algorithms.model import layers as spec
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names

Weights = Mapping[str, jax.Array]


def apply(layer: Any, x: Any, own: Weights) -> Any:
    """Return a layer's output for a batch; the docstring of the layer's class in `spec`
    defines it."""
    match layer:
        case spec.Linear():
            return x @ own["weight"].T + own.get("bias", 0.0)
        case spec.Conv2d(padding=n):
            y = lax.conv_general_dilated(x, own["weight"], (1, 1), [(n, n), (n, n)])
            return y + own["bias"][:, None, None] if layer.bias else y
        case spec.MaxPool2d(kernel=k):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, k, k), (1, 1, k, k), "VALID")
        case spec.ReLU():
            return jax.nn.relu(x)
        case spec.Tanh():
            return jnp.tanh(x)
        case spec.GELU():
            return jax.nn.gelu(x, approximate=False)
        case spec.Flatten():
            return x.reshape(len(x), -1)
        case spec.Rows():
            return x[:, 0]
        case spec.Position():
            return x + own["weight"]
        case spec.LayerNorm():
            centred = x - x.mean(-1, keepdims=True)
            scale = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + layer.eps)
            return centred * scale * own["weight"] + own["bias"]
        case spec.Attention(causal=False, masked=False):
            b, length, width = x.shape
            heads = x.reshape(b, length, 3, layer.heads, -1)
            q, k, v = heads.transpose(2, 0, 3, 1, 4)
            shares = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
            return (shares @ v).swapaxes(1, 2).reshape(b, length, width // 3)
        case spec.MeanPool(masked=False):
            return x.mean(1)
    raise NotImplementedError(f"jax has no layer {layer}")


def forward(weights: Weights, x: Any, masks: Sequence[Any] = (), *, model: ModelSpec) -> Any:
    """Return the logits and the output of every layer.

    Args:
        masks: the masks of the Dropout layers, in order; without them Dropout is the identity.
    """
    branches, outputs, waiting = [], {}, iter(masks)
    for name, layer in model.layers:
        match layer:
            case spec.Branch():
                branches.append(x)
            case spec.Merge():
                x = branches.pop() + x
            case spec.Dropout():
                x = x * next(waiting) if masks else x
            case _:
                own = {
                    leaf: weights[full]
                    for leaf, full in canonical_parameter_names(name, layer).items()
                }
                x = apply(layer, x, own)
        outputs[name] = x
    return x, outputs


def cross_entropy(logits: Any, y: Any) -> Any:
    """Return the mean cross-entropy of ``logits`` (batch, classes) for integer labels ``y``."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()


def mse(logits: Any, y: Any) -> Any:
    """Return the mean squared error of ``logits`` (batch, classes) against one-hot labels."""
    return jnp.square(logits - jax.nn.one_hot(y, logits.shape[-1])).mean()


LOSSES = {"cross_entropy": cross_entropy, "mse": mse}


def mean_loss(weights: Weights, x: Any, y: Any, masks: Any, *, model: ModelSpec, loss: str) -> Any:
    """Return the mean loss of a batch as a function of the weights."""
    return LOSSES[loss](forward(weights, x, masks, model=model)[0], y)


#: Compiled once for each model, loss and shape of a batch.
infer = jax.jit(forward, static_argnames="model")
loss_and_gradient = jax.jit(jax.value_and_grad(mean_loss), static_argnames=("model", "loss"))
