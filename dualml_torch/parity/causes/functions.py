"""Mutations of single tensors: other functions, other element orders, other variants of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml_torch.parity.operations import BoundCall, find_tensors

Value = torch.Tensor


def transform(what: Sequence[Any], x: Value) -> Value:
    """Return one tensor under the transform ``what``, a name in `TRANSFORMS` and the arguments that
    follow the tensor; ``x`` is unchanged."""
    name, *numbers = what
    return TRANSFORMS[name](x, *numbers)


def reorder_chunks(x: Value, axis: int, *order: int) -> Value:
    """Split ``x`` along an axis into as many equal chunks as ``order`` has numbers and concatenate
    them in that order, from 0."""
    parts = x.chunk(len(order), axis)
    return torch.cat([parts[i] for i in order], axis)


def interleave(x: Value, axis: int, count: int) -> Value:
    """Split an axis into ``count`` equal blocks and reorder it by position in the block: all first
    elements, then all second ones, … (halves versus pairs of a rotary embedding)."""
    return x.unflatten(axis, (count, -1)).transpose(axis, axis + 1).flatten(axis, axis + 1)


def regroup(x: Value, axis: int, first: int, second: int) -> Value:
    """Reorder an axis that is made of ``first`` blocks of ``second`` smaller blocks each, so that
    the smaller ones become the outer ones, such as heads and (queries, keys, values)."""
    parts = x.unflatten(axis, (first, second, -1)).transpose(axis, axis + 1)
    return parts.flatten(axis, axis + 2)


def neutral_parameter(x: Value) -> Value:
    """Return a parameter without effect, of the shape of ``x``: ones, for a scale, if the mean of
    ``x`` is nearer to 1 than to 0, else zeros, for a bias."""
    scale = bool((x.mean() - 1).abs() < x.mean().abs())
    return x * 0 + float(scale)  # its gradient is zero, not missing: it is still decayed


def reinterpret_axes(x: Value, *order: int) -> Value:
    """Reinterpret the elements of ``x``, row by row, as a tensor whose axes have another ``order``,
    and permute it back to the shape of ``x``."""
    back = sorted(range(x.dim()), key=order.__getitem__)
    return x.reshape([x.shape[i] for i in order]).permute(back)


def invert(x: Value) -> Value:
    """Return ``~x`` for booleans, else ``1 - x``."""
    return ~x if x.dtype == torch.bool else 1 - x


def standardize(x: Value, axis: int) -> Value:
    """Subtract the mean and divide by the standard deviation (biased, ε = 1e-5) over all axes from
    ``axis`` on."""
    return functional.layer_norm(x, x.shape[axis:])


def batch_norm(x: Value, then: str = "identity") -> Value:
    """Normalize with the statistics of the batch per channel (axis 1), without scale and shift,
    then apply the transform named ``then``."""
    return TRANSFORMS[then](functional.batch_norm(x, None, None, training=True))


TRANSFORMS: dict[str, Callable[..., Value]] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "logsigmoid": functional.logsigmoid,
    "elu": functional.elu,
    "selu": functional.selu,
    "mish": functional.mish,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": functional.hardtanh,
    "leaky_relu": lambda x, slope: functional.leaky_relu(x, slope),
    "abs": torch.abs,
    "identity": lambda x: x,
    "softmax": lambda x, axis: torch.softmax(x, axis),
    "log_softmax": lambda x, axis: torch.log_softmax(x, axis),
    "normalize": lambda x, axis: functional.normalize(x, dim=axis),
    "standardize": standardize,
    "batch_norm": batch_norm,
    "center": lambda x, axis: x - x.mean(axis, keepdim=True),
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "negative": torch.neg,
    "sign": torch.sign,
    "one_minus": lambda x: 1 - x,
    "scale": lambda x, c: x * c,
    "shift": lambda x, c: x + c,
    "fill": lambda x, c: torch.full_like(x, c),
    "neutral": neutral_parameter,
    "invert": invert,
    "flip": lambda x, axis: x.flip(axis),
    "roll": lambda x, axis, n: x.roll(n, axis),
    "chunks": reorder_chunks,
    "interleave": interleave,
    "regroup": regroup,
    "rearrange": lambda x, *order: x.permute(order).reshape(x.shape),
    "recut": reinterpret_axes,
    "take": lambda x, axis, *order: x.index_select(axis, torch.tensor(order)),
    "arrange": lambda x, *order: x.reshape(len(x), -1)[:, list(order)].reshape(x.shape),
    "half": lambda x: x.half().to(x.dtype),
    "bfloat": lambda x: x.bfloat16().to(x.dtype),
    "round": torch.round,
    "trunc": torch.trunc,
}


def diagonal_softmax(x: Value, y: Value) -> Value:
    """Return the values of ``y``, the softmax of ``x``, with only the diagonal of its Jacobian, ``y
    (1 - y)``, as gradient."""
    return y.detach() + (x - x.detach()) * (y * (1 - y)).detach()


def call_variant(
    wanted: str, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of the function ``wanted`` of the same family, called with the arguments of
    ``func`` (of a pooling its window, of a reduction its axes alone); ``rsub`` and ``rdiv``
    exchange the two operands. A ``max`` or ``min`` along an axis keeps the indices of the original
    call."""
    if OPERATOR_FUNCTIONS.get(name, name) in (
        "max_pool2d",
        "avg_pool2d",
        "max_pool1d",
        "avg_pool1d",
    ):
        given = BoundCall(func, name, args, kwargs).values
        keys = ("kernel_size", "stride", "padding", "ceil_mode")
        settings = {k: v for k, v in given.items() if k in keys and v is not None}
        return getattr(functional, wanted)(find_tensors((args, kwargs))[0], **settings)
    if name in ("max", "min") and len(find_tensors((args, kwargs))) == 2:
        return getattr(torch, wanted)(*find_tensors((args, kwargs)))
    if name in ("max", "min"):  # along an axis: values and indices
        given = BoundCall(func, name, args, kwargs).values
        (x,), dim, keep = (
            find_tensors((args, kwargs)),
            given["dim"],
            bool(given.get("keepdim", False)),
        )
        places = func(*args, **kwargs)[1]
        values = getattr(torch, wanted)(x, dim=dim, keepdim=keep)
        return (values if isinstance(values, Value) else values[0]), places
    if wanted in (
        "mean",
        "sum",
        "amax",
        "amin",
        "logsumexp",
        "prod",
        "std",
        "var",
        "max",
        "min",
        "median",
    ):
        given = BoundCall(func, name, args, kwargs).values
        x = find_tensors((args, kwargs))[0]
        dim = given.get("dim")
        if wanted in ("max", "min", "median"):
            wanted = {"max": "amax", "min": "amin"}.get(wanted, wanted)
        dim = list(range(x.dim())) if dim in (None, []) else dim
        if wanted == "prod":
            return torch.prod(
                x, dim if isinstance(dim, int) else dim[0], given.get("keepdim", False)
            )
        return getattr(torch, wanted)(x, dim=dim, keepdim=bool(given.get("keepdim", False)))
    if wanted in ("tril", "triu"):
        return getattr(torch, wanted)(*args, **kwargs)
    if wanted == "rsub":
        return args[1] - args[0]
    if wanted == "rdiv":
        return args[1] / args[0]
    own = getattr(torch, wanted, None) or getattr(functional, wanted)
    return own(*args, **kwargs)
