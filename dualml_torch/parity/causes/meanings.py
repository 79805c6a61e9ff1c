"""Actions of mutations that stand for a mistake with a name: exchanged settings, ignored lengths,
masked rows, reversed constants, pairs of rotary positions, other ways to smooth, to average or to
interpolate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dualml_torch.parity.causes.call_forms import MutationTarget
from dualml_torch.parity.causes.calls import replace_tensor
from dualml_torch.parity.causes.functions import interleave
from dualml_torch.parity.causes.masked_rows import fill_masked_rows
from dualml_torch.parity.causes.recurrent import gru_with_early_reset
from dualml_torch.parity.causes.resampling import resample
from dualml_torch.parity.operations import BoundCall, find_tensors

Value = torch.Tensor


def exchange_settings(call: MutationTarget) -> Any:
    """Run the call with the argument ``change.argument`` set to the other one of its two values
    ``change.old`` and ``change.value``."""
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    argument, old, new = str(call.change.argument), call.change.old, call.change.value
    value = bound.values.get(argument)
    value = list(value) if isinstance(value, tuple) else value
    old = list(old) if isinstance(old, tuple) else old
    bound.set_argument(argument, new if value == old else old)
    return call.func(*bound.args, **bound.kwargs)


def exchange_arguments(call: MutationTarget) -> Any:
    """Run the call with the values of its two settings ``change.value`` (their names)
    exchanged."""
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    a, b = call.change.value
    x, y = bound.values[a], bound.values[b]
    bound.set_argument(a, y)
    bound.set_argument(b, x)
    return call.func(*bound.args, **bound.kwargs)


def use_all_lengths(call: MutationTarget) -> Any:
    """Pack a batch as if every sequence had the length of the longest possible one."""
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    tensors = find_tensors((call.args, call.kwargs))
    first = next((one for one in reversed(call.args) if isinstance(one, bool)), False)
    first = bool(bound.values.get("batch_first", first))
    full = torch.full_like(tensors[1], tensors[0].shape[1 if first else 0])
    moved, named = replace_tensor(call.args, call.kwargs, 1, full)
    return call.func(*moved, **named)


def reverse_constants(call: MutationTarget) -> Any:
    """Run the call with its constants of ``change.argument`` elements reversed, at the tensors
    that ``change.value`` names as (function, position)."""
    moved, named = call.args, call.kwargs
    length = int(call.change.argument)
    for name, at in call.change.value:
        if name == call.name and at < len(call.tensors):
            one = call.tensors[at]
            if one.numel() == length:
                axis = list(one.shape).index(length)
                moved, named = replace_tensor(moved, named, at, one.flip(axis))
    return call.func(*moved, **named)


def rotate_other_pairs(call: MutationTarget) -> Any:
    """Run the call and return its outputs with the last axis of some reordered by `interleave`:
    ``change.value`` is (number of blocks, numbers of the outputs from 0)."""
    blocks, indices = call.change.value
    result = call.func(*call.args, **call.kwargs)
    outputs = find_tensors(result)
    for at in indices if len(outputs) > 1 else (0,):
        changed = interleave(outputs[at], outputs[at].dim() - 1, blocks)
        result = replace_tensor((result,), {}, at, changed)[0][0]
    return result


def copy_output(call: MutationTarget) -> Any:
    """Run the call and return its result with copies of the tensors in it, which share no memory
    with its arguments."""
    result = call.func(*call.args, **call.kwargs)
    for at, one in enumerate(find_tensors(result)):
        result = replace_tensor((result,), {}, at, one.clone())[0][0]
    return result


def copy_input(call: MutationTarget) -> Any:
    """Run the call, of a function that writes into its first tensor, on a copy of that and return
    the result."""
    moved, named = replace_tensor(call.args, call.kwargs, 0, call.tensors[0].clone())
    return call.func(*moved, **named)


def count_positions(call: MutationTarget) -> Any:
    """Look up the rows 0, 1, 2, … of a table along the last axis of the indices, whatever these
    are."""
    at = next(i for i, one in enumerate(call.tensors) if not one.is_floating_point())
    indices = call.tensors[at]
    plain = torch.arange(indices.shape[-1]).to(indices).expand_as(indices)
    moved, named = replace_tensor(call.args, call.kwargs, at, plain)
    return call.func(*moved, **named)


def smooth_other_classes(call: MutationTarget) -> Any:
    """Compute a cross-entropy whose smoothing ε is shared by the other K − 1 classes.

    Of K classes PyTorch gives ε / K to each, the target included; ε · K / (K − 1) there is the
    same as ε shared by the others.

    Raises:
        ValueError: there is no smoothing.
    """
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    smoothing = float(bound.values.get("label_smoothing") or 0.0)
    scores = call.tensors[0]
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    if not smoothing or classes < 2:
        raise ValueError("no label smoothing")
    bound.set_argument("label_smoothing", smoothing * classes / (classes - 1))
    return call.func(*bound.args, **bound.kwargs)


def average_parts(call: MutationTarget) -> Value:
    """Return the mean of the mean losses of ``change.value`` equal parts of the batch.

    Raises:
        ValueError: the reduction is no mean, or the batch has no such parts.
    """
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    count, (scores, target) = int(call.change.value), call.tensors[:2]
    if bound.values.get("reduction", "mean") != "mean" or len(target) % count:
        raise ValueError("no mean of parts")
    means = []
    for x, y in zip(scores.chunk(count), target.chunk(count), strict=True):
        moved, named = replace_tensor(call.args, call.kwargs, 0, x)
        moved, named = replace_tensor(moved, named, 1, y)
        means.append(call.func(*moved, **named))
    return torch.stack(means).mean()


def reset_before_product(call: MutationTarget) -> Any:
    """Compute a GRU whose reset gate multiplies the state before the product with its weights, see
    `gru_with_early_reset`."""
    return gru_with_early_reset(call.func, call.name, call.args, call.kwargs)


#: Action of a mutation → the function that applies it.
MEANING_ACTIONS: dict[str, Callable[[MutationTarget], Any]] = {
    "trade_settings": exchange_settings,
    "trade_arguments": exchange_arguments,
    "masked_rows": fill_masked_rows,
    "all_lengths": use_all_lengths,
    "reverse_constants": reverse_constants,
    "rotary_neighbours": rotate_other_pairs,
    "rotary_halves": rotate_other_pairs,
    "unaliased": copy_output,
    "out_of_place": copy_input,
    "plain_positions": count_positions,
    "smooth_others": smooth_other_classes,
    "mean_of_parts": average_parts,
    "reset_before": reset_before_product,
    "resample": resample,
}
