"""Transforms of one tensor in NumPy: what a mistake in a model or an experiment does to a value.

A search on a model's graph names them in its mutations, and the framework computes them
(`dualml_torch.parity.causes.functions` has the same names). A search on an experiment computes them
here, and looks for the one that makes a recorded tensor of the expected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

import numpy as np

from dualml.backend.reference.recurrent import sigmoid
from dualml.common.array_types import Array
from dualml.common.distance import distance
from dualml.parity.causes.element_orders import element_orders
from dualml.parity.causes.mutation import Transform
from dualml.parity.causes.permutation_search import find_element_orders
from dualml.parity.causes.tables import EXTRAS

#: Transforms that only add a number, which is fitted.
SHIFT = "shift"


def round_to_half(a: Array, kind: str) -> Array:
    """Return an array rounded to the nearest float16 (``kind`` float16) or bfloat16 values, as
    float64; overflow gives infinity."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return a.astype(np.float16).astype(np.float64)
    bits = a.astype(np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + 0x7FFF
    return ((bits + even.astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32).astype(float)


def reorder_chunks(x: Array, axis: int, *order: int) -> Array:
    """Split an axis into as many equal chunks as ``order`` has numbers, and join them in that
    order, counted from 0."""
    parts = np.split(x, len(order), axis)
    return np.concatenate([parts[i] for i in order], axis)


def regroup(x: Array, axis: int, *sizes: int) -> Array:
    """Reorder an axis of ``sizes[0]`` blocks with ``sizes[1]`` blocks inside each (default: of
    single slices), so that the inner ones become the outer ones."""
    first, second = (*sizes, x.shape[axis] // sizes[0])[:2]
    shape = (*x.shape[:axis], first, second, -1, *x.shape[axis + 1 :])
    return x.reshape(shape).swapaxes(axis, axis + 1).reshape(x.shape)


def reinterpret_axes(x: Array, *order: int) -> Array:
    """Read the elements row by row as an array whose axes have another order, and turn it back to
    the shape of ``x``."""
    return x.reshape([x.shape[i] for i in order]).transpose(np.argsort(order))


def log_softmax(x: Array, axis: int = -1) -> Array:
    """Return the logarithm of the softmax along an axis."""
    z = x - x.max(axis, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis, keepdims=True)))


def gelu(x: Array) -> Array:
    """Return the exact GELU, x·Φ(x)."""
    from scipy.special import erf  # imported here: it takes a third of a second

    return np.asarray(x * 0.5 * (1 + erf(x / np.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    """Return the approximation of the GELU by tanh."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


#: Name → function of an array and the transform's numbers that keeps the array's shape.
TRANSFORMS: Mapping[str, Callable[..., Array]] = {
    "flip": np.flip,
    "roll": lambda x, axis, by: np.roll(x, by, axis),
    "chunks": reorder_chunks,
    "interleave": regroup,
    "regroup": regroup,
    "rearrange": lambda x, *order: x.transpose(order).reshape(x.shape),
    "recut": reinterpret_axes,
    "take": lambda x, axis, *order: x.take(order, axis),
    "arrange": lambda x, *order: x.reshape(len(x), -1)[:, order].reshape(x.shape),
    "half": partial(round_to_half, kind="float16"),
    "bfloat": partial(round_to_half, kind="bfloat16"),
    "round": np.round,
    "trunc": np.trunc,
    SHIFT: np.add,
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "softplus": lambda x: np.logaddexp(x, 0),
    "tanh": np.tanh,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "abs": np.abs,
    "softmax": lambda x, axis: np.exp(log_softmax(x, axis)),
    "log_softmax": log_softmax,
    "center": lambda x, axis: x - x.mean(axis, keepdims=True),
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "negative": np.negative,
    "one_minus": lambda x: 1 - x,
}
#: Transforms that only put elements elsewhere.
REORDERING = frozenset(
    {"flip", "roll", "chunks", "interleave", "regroup", "rearrange", "recut", "take", "arrange"}
)


def apply_transform(transform: Transform, x: Array) -> Array:
    """Return an array after a transform: its name, then its numbers."""
    with np.errstate(all="ignore"):
        return TRANSFORMS[transform[0]](x, *transform[1:])


def find_transform(x: Array, y: Array, limit: float) -> Transform | None:
    """Return the first transform of ``x``, likely ones first, from which ``y`` is at most ``limit``
    away (relative distance); None if there is none, or if the shapes differ."""
    if x.shape != y.shape or not x.size:
        return None
    tried = ((one, distance(y, apply_transform(one, x))) for one in candidate_transforms(x, y))
    with np.errstate(all="ignore"):  # both may be infinite
        return next((one for one, far in tried if far <= limit), None)


def candidate_transforms(x: Array, y: Array) -> Iterator[Transform]:
    """Yield the transforms that may make ``y`` of ``x``: orders of elements if both hold nearly the
    same numbers, else functions of elements, the last of them a fitted number that is added."""
    left, right = (np.sort(a, axis=None).astype(np.float64) for a in (x, y))
    if np.allclose(left, right, rtol=1e-3, atol=1e-3 * float(np.abs(left).max())):
        yield from chain(element_orders(x.shape), find_element_orders(x, y))
    elif x.dtype.kind == "f":
        functions = [t for t in (*EXTRAS, ("round",), ("trunc",)) if t[0] in TRANSFORMS]
        yield from (t for t in functions if not t[1:] or -x.ndim <= t[1] < x.ndim)
        yield SHIFT, float(np.mean(y.astype(np.float64) - x))
