"""Variants of normalization and padding, and checks of the sizes that recurrent kernels do not
check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from dualml_torch.parity.operations import BoundCall, find_tensors

Value = torch.Tensor
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def norm_variant(form: str, name: str, given: Mapping[str, Any]) -> Value:
    """Return a normalization, computed from its arguments ``given`` with the one change ``form``
    (``eps_outside``, ``unbiased``, ``uncentred``, ``detached``, …) instead of by the function
    ``name``; running statistics are neither used nor updated. For ``mean``, of squares, the sum is
    divided by one less.

    Raises:
        ValueError: a batch norm in evaluation mode has no such form.
    """
    if name == "mean":  # mean of squares: divide by one less
        x = given["self"] if "self" in given else given["input"]
        y = (
            x.mean(given["dim"], keepdim=bool(given.get("keepdim")))
            if given.get("dim")
            else x.mean()
        )
        count = x.numel() // y.numel()
        return y * count / (count - 1)
    x, eps = given["input"], float(given.get("eps") or 1e-5)
    if name == "normalize":
        power = float(given.get("p", 2.0))
        size = (x.abs() ** power).sum(given.get("dim", 1), keepdim=True)
        if form == "no_root":
            return x / size
        return x / (
            (size + eps) ** (1 / power) if form == "eps_inside" else size ** (1 / power) + eps
        )
    shape = x.shape
    weight, bias = given.get("weight"), given.get("bias")
    if name == "batch_norm":
        if not given.get("training"):
            raise ValueError("evaluation")
        axes = [0, *range(2, x.dim())]
        view = [1, -1] + [1] * (x.dim() - 2)
        weight, bias = (None if one is None else one.view(view) for one in (weight, bias))
    elif name == "instance_norm":
        axes = list(range(2, x.dim()))
        view = [1, -1] + [1] * (x.dim() - 2)
        weight, bias = (None if one is None else one.view(view) for one in (weight, bias))
    elif name == "group_norm":
        view = [1, -1] + [1] * (x.dim() - 2)
        weight, bias = (None if one is None else one.view(view) for one in (weight, bias))
        x = x.reshape(shape[0], given["num_groups"], -1)
        axes = [2]
    else:
        axes = list(range(x.dim() - len(given["normalized_shape"]), x.dim()))
    mean = x.mean(axes, keepdim=True)
    if form == "uncentred" or (name == "rms_norm" and form != "centred"):
        mean = torch.zeros_like(mean)
    variance = (x - mean).square().mean(axes, keepdim=True)
    if form in ("detached_mean", "detached"):
        mean = mean.detach()
    if form in ("detached_variance", "detached"):
        variance = variance.detach()
    if "unbiased" in form:
        count = x.numel() / variance.numel()
        variance = variance * count / (count - 1)
    if form == "eps_floor":
        root = variance.clamp(min=eps).sqrt()
    else:
        root = variance.sqrt() + eps if "eps_outside" in form else (variance + eps).sqrt()
    y = ((x - mean) / root).reshape(shape)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def tile_heads(func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Compute a ``repeat_interleave`` so that the whole axis is repeated, one copy after the other,
    instead of each element: another order of shared attention heads."""
    given = BoundCall(func, name, args, kwargs).values
    x, axis, times = given["self"], given["dim"], given["repeats"]
    return x.repeat([times if i == axis % x.dim() else 1 for i in range(x.dim())])


def mean_over_targets(func: Any, bound: BoundCall, with_ignored: bool) -> Value:
    """Return the sum of a loss divided by a number of targets. Its own mean divides by the sum of
    the class weights of the targets that are not ignored.

    Args:
        with_ignored: whether the targets that the loss ignores count, too.

    Raises:
        ValueError: the reduction is not a mean, the targets are no indices, or the divisor would be
            that of the mean: ``with_ignored`` but no target is ignored, or without it no class
            weights.
    """
    given = bound.values
    target = given["target"]
    if given.get("reduction", "mean") != "mean" or target.is_floating_point():
        raise ValueError("no mean over indices")
    ignored = int((target == given.get("ignore_index", -100)).sum())
    if (with_ignored and not ignored) or (not with_ignored and given.get("weight") is None):
        raise ValueError("the divisor is the same")
    bound.set_argument("reduction", "sum")
    total: Value = func(*bound.args, **bound.kwargs)
    return total / (target.numel() - (0 if with_ignored else ignored))


def glu_variant(form: str, given: Mapping[str, Any]) -> Value:
    """Compute a gated linear unit with the gate named ``form`` in place of the sigmoid, or with its
    halves swapped if that is ``halves``."""
    x, gate = given["input"].chunk(2, given.get("dim", -1))
    if form == "halves":
        return gate * torch.sigmoid(x)
    own = {"tanh": torch.tanh}.get(form) or getattr(functional, form)
    return x * own(gate)


def update_with_biased_variance(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    """Run a batch norm and return its result; in training the running variance is then updated in
    place with the biased variance, by which it divides, instead of the unbiased one."""
    x, variance = given["input"], given["running_var"]
    axes = [0, *range(2, x.dim())]
    momentum = float(given["momentum"])
    kept = (1 - momentum) * variance + momentum * x.detach().var(axes, unbiased=False)
    result = func(*args, **kwargs)
    if given.get("training"):
        variance.data.copy_(kept)  # invisible to autograd
    return result


#: Ways in which a convolution is padded with values of its input.
PADDING_MODES = ("reflect", "replicate", "circular")


def pad_input(
    way: str, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a convolution or pooling with padding that differs between the two sides of an axis, or
    with values of the input in place of zeros.

    Args:
        way: ``behind`` or ``before`` puts all padding at the end or the beginning. ``same`` pads as
            much as makes the output length input length / stride (of a transposed convolution input
            length × stride), the odd element at the end, and ``same_before`` at the beginning.
            ``reflect``, ``replicate`` and ``circular`` pad both sides as `functional.pad` does. Any
            other word means no padding. A transposed convolution is cropped: see `crop_transposed`.
    """
    bound = BoundCall(func, name, args, kwargs)
    given = bound.values
    if "transpose" in name:
        return crop_transposed(way, func, bound)
    first = "input" if "input" in given else "self"
    x, axes = given[first], 1 if name.endswith("1d") else 2

    def per_axis(value: Any) -> list[int]:
        return (
            list(value) * (axes if len(value) == 1 else 1)
            if isinstance(value, list | tuple)
            else [value] * axes
        )

    kernel = list(given["weight"].shape[2:]) if "conv" in name else per_axis(given["kernel_size"])
    stride = per_axis(given["stride"]) if given.get("stride") not in (None, []) else kernel
    spread, padding = per_axis(given.get("dilation", 1)), per_axis(given["padding"])
    amounts: list[int] = []
    for at in reversed(range(axes)):
        length = x.shape[2 + at]
        if way.startswith("same"):
            total = max(
                (-(-length // stride[at]) - 1) * stride[at]
                + (kernel[at] - 1) * spread[at]
                + 1
                - length,
                0,
            )
        else:
            total = 2 * padding[at] if way in ("behind", "before") else 0
        if way in PADDING_MODES:
            total = 2 * padding[at]
        less = total // 2 if way.startswith("same") or way in PADDING_MODES else 0
        pair = [less, total - less]
        amounts += pair[::-1] if way in ("same_before", "before") else pair
    fill = float("-inf") if name.startswith("max") else 0.0
    mode = way if way in PADDING_MODES else "constant"
    padded = functional.pad(x, amounts, mode, None if mode in PADDING_MODES else fill)
    bound.set_argument(first, padded)
    bound.set_argument(
        "padding", 0 if not isinstance(given["padding"], list | tuple) else [0] * axes
    )
    return func(*bound.args, **bound.kwargs)


def fit_to_shape(y: Value, shape: Sequence[int]) -> Value:
    """Crop or zero-pad an output at its end, along the axes from 2 on, to a shape, as a causal
    convolution does."""
    more = [n for axis in reversed(range(2, y.dim())) for n in (0, shape[axis] - y.shape[axis])]
    return functional.pad(y, more) if any(more) else y


def shifted_loss(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], length: int) -> Value:
    """Return the loss of each token's output with the next token's target; the last output and the
    first target of a row are left out.

    Args:
        length: tokens per row, where rows are concatenated in targets (N,); else rows lie along the
            last axis, and it is ignored.
    """
    outputs, targets = find_tensors((args, kwargs))[:2]
    if outputs.dim() == targets.dim() + 1 == 2:  # rows concatenated
        outputs = outputs.unflatten(0, (-1, length))[:, :-1].flatten(0, 1)
        targets = targets.unflatten(0, (-1, length))[:, 1:].flatten()
    else:
        outputs, targets = outputs[..., :-1], targets[..., 1:]
    rest = {k: v for k, v in kwargs.items() if k not in ("input", "target")}
    loss: Value = func(outputs, targets, *args[2:], **rest)
    return loss


def crop_transposed(way: str, func: Any, bound: BoundCall) -> Value:
    """Run a transposed convolution without padding and cut its full output to the original size, at
    its beginning, or at its end if ``way`` is ``behind``; for ``same…``, on both sides, to input
    length × stride."""
    given = bound.values
    stride, length = given["stride"], given["input"].shape[2:]
    original: Value = func(*bound.args, **bound.kwargs)
    bound.set_argument("padding", 0)
    bound.set_argument("output_padding", 0)
    whole: Value = func(*bound.args, **bound.kwargs)
    for axis in range(2, whole.dim()):
        step = stride[axis - 2] if isinstance(stride, list | tuple) else stride
        size = length[axis - 2] * step if way.startswith("same") else original.shape[axis]
        more = max(whole.shape[axis] - size, 0)
        before = {"same": more // 2, "same_before": more - more // 2, "behind": 0}.get(way, more)
        whole = whole.narrow(axis, before, min(size, whole.shape[axis]))
    return whole


def check_recurrent_sizes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check the sizes of a recurrent call (of parameters those of the first layer), whose kernel
    would read memory out of bounds otherwise; do nothing for any other function.

    Raises:
        ValueError: sizes of input, state and parameters do not match.
    """
    if name not in RECURRENT:
        return
    given = find_tensors((args, kwargs))
    x, states = given[0], [one for one in given[1:] if one.dim() == 3]
    weights = [one for one in given[1:] if one.dim() == 2]
    if x.dim() == 2 and not given[1].is_floating_point():  # packed: batch size of each step
        batch = int(given[1][0]) if len(given[1]) and given[1].sum() == len(x) else -1
    else:
        first = args[-1] if isinstance(args[-1], bool) else False
        batch = x.shape[0 if first else 1] if x.dim() == 3 else -1
    if (
        {one.shape[1] for one in states} != {batch}
        or len({one.shape for one in states}) != 1
        or not weights
        or weights[0].shape[1] != x.shape[-1]
        or weights[1].shape[1] != states[0].shape[2]
        or weights[0].shape[0] != weights[1].shape[0]
    ):
        raise ValueError(f"{name}: sizes do not fit")


def zero_state(x: Value, batch_first: bool, state: Value) -> Value:
    """Return zeros in place of an initial ``state`` (layers, B, H), for the batch size B of an
    input that is read with the batch on axis 0 if ``batch_first``, else on axis 1."""
    return state.new_zeros(state.shape[0], x.shape[0 if batch_first else 1], state.shape[2])
