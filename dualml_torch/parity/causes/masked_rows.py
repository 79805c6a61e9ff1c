"""Attention scores whose rows are masked as a whole, under a mutation."""

from __future__ import annotations

import math
from typing import Any

import torch

from dualml_torch.parity.causes.call_forms import MutationTarget
from dualml_torch.parity.causes.calls import replace_tensor
from dualml_torch.parity.operations import BoundCall

Value = torch.Tensor
#: Attribute of masked scores: the scores with a number added where they are masked.
ADDED = "_scores_with_number"


def fill_masked_rows(call: MutationTarget) -> Any:
    """Run a softmax and give rows whose scores are all −∞ equal weights, zeros or NaN, as
    ``change.value`` says; a ``masked_fill`` returns its first tensor as it is. With the argument
    ``added``, a softmax takes the scores to which the number ``change.value`` was added where they
    are masked."""
    if call.change.argument == "added":
        return add_mask(call, float(call.change.value))
    if call.name == "masked_fill":
        return call.tensors[0]
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    scores, axis = call.tensors[0], int(bound.values.get("dim", -1))
    empty = torch.isneginf(scores).all(axis, keepdim=True)
    if call.change.value == "uniform":
        moved, named = replace_tensor(call.args, call.kwargs, 0, scores.masked_fill(empty, 0.0))
        return call.func(*moved, **named)
    weights = call.func(*call.args, **call.kwargs)
    return weights.masked_fill(empty, 0.0 if call.change.value == "zero" else math.nan)


def add_mask(call: MutationTarget, number: float) -> Any:
    """Run a call of masked attention in which a number is added to masked scores, in place of −∞.

    Masks by ``masked_fill`` and ``where``, and sums with a mask, still give −∞, so that the model
    makes the same calls as before; beside their result, in the attribute `ADDED`, they keep the
    scores with the number, which the softmax takes. A ``masked_fill`` of weights, whose value is
    not −∞, returns its first tensor as it is.
    """
    if call.name == "softmax":
        moved, named = call.args, call.kwargs
        if hasattr(call.tensors[0], ADDED):
            scores = getattr(call.tensors[0], ADDED)
            moved, named = replace_tensor(call.args, call.kwargs, 0, scores)
        return call.func(*moved, **named)
    bound = BoundCall(call.func, call.name, call.args, call.kwargs)
    if call.name == "masked_fill" and float(bound.values.get("value", 0.0)) != -math.inf:
        return call.tensors[0]
    result = call.func(*call.args, **call.kwargs)
    if call.name == "masked_fill":
        scores, mask = call.tensors[0], call.tensors[1].to(result.dtype) * number
    elif call.name == "where":
        scores = next(one for one in call.tensors[1:] if one.dim() and one.is_floating_point())
        mask = (~call.tensors[0]).to(result.dtype) * number
    else:
        at = next(i for i, one in enumerate(call.tensors) if torch.isneginf(one).any())
        scores, mask = call.tensors[1 - at], call.tensors[at].clamp(min=number)
    setattr(result, ADDED, getattr(scores, ADDED, scores) + mask)
    return result
