"""One function call under one mutation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dualml.parity.causes.mutation import Mutation
from dualml_torch.parity.causes.functions import call_variant, diagonal_softmax, transform
from dualml_torch.parity.causes.layers import (
    check_recurrent_sizes,
    fit_to_shape,
    glu_variant,
    mean_over_all_targets,
    norm_variant,
    pad_asymmetrically,
    remember_biased_variance,
    shifted_loss,
    tile_heads,
    zero_state,
)
from dualml_torch.parity.operations import BoundCall, find_tensors
from dualml_torch.parity.rng import apply_dropout

Value = torch.Tensor
Draw = Callable[[tuple[int, ...]], NDArray[np.float32]]
#: Large negative number that ports use for masked scores in place of minus infinity.
MASKED = -1e9
#: Arrays of the other side, by its names, that may replace constants of this side.
NUMBERS: dict[str, Value] = {}


@dataclass(frozen=True, eq=False)
class MutatedFunction:
    """A function under one mutation; several mutations of one call are nested.

    Attributes:
        draw: returns uniform numbers of a shape, for a Dropout.
    """

    change: Mutation
    func: Any
    name: str
    draw: Draw

    @property
    def original(self) -> Any:
        """The function without any mutation."""
        return getattr(self.func, "original", self.func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.change.action == "dropout":
            x = self.func(*args, **kwargs)
            return apply_dropout(torch.from_numpy(self.draw(tuple(x.shape))), x, self.change.value)
        return call_mutated(self.change, self.func, self.name, args, kwargs)


def replace_constant(
    change: Mutation, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Replace a constant c, and 1 − c, in the arguments of a call."""
    old, new = float(change.old), float(change.value)

    def replace_value(one: Any) -> Any:
        if not isinstance(one, float):
            return one
        if abs(one - old) < 1e-12:
            return new
        return 1 - new if abs(one - (1 - old)) < 1e-12 else one

    changed: Any = tree_map(replace_value, (tuple(args), dict(kwargs)))
    return changed


def call_mutated(
    change: Mutation, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of a call under one mutation.

    Raises:
        Exception: the framework's own error if the mutation is impossible.
    """
    if change.action == "set":
        bound = BoundCall(func, name, args, kwargs)
        bound.set_argument(str(change.argument), change.value)
        if change.argument == "batch_first":  # the kernel does not check the state's size
            bound.set_argument(
                "hx",
                tree_map(
                    partial(zero_state, find_tensors(args)[0], change.value), bound.values["hx"]
                ),
            )
        check_recurrent_sizes(name, bound.args, bound.kwargs)
        if name == "softmax" and change.argument == "dim":
            # Along another axis everything may be masked, for which ports use a large number.
            bound.args[0] = bound.args[0].clamp(min=MASKED)
        return func(*bound.args, **bound.kwargs)
    given = find_tensors((args, kwargs))
    if change.action == "drop":
        return given[int(change.argument)].clone()
    if change.action == "settings":
        bound = BoundCall(func, name, args, kwargs)
        for argument, value in change.value:
            bound.set_argument(argument, value)
        return fit_to_shape(func(*bound.args, **bound.kwargs), func(*args, **kwargs).shape)
    if change.action == "omit":
        moved, named = replace_tensor(args, kwargs, int(change.argument), None)
        return func(*moved, **named)
    if change.action == "exchange":
        i, j = change.value
        moved, named = replace_tensor(args, kwargs, i, given[j])
        moved, named = replace_tensor(moved, named, j, given[i])
        return func(*moved, **named)
    if change.action == "input":
        at = int(change.argument)
        moved, named = replace_tensor(args, kwargs, at, transform(change.value, given[at]))
        check_recurrent_sizes(name, moved, named)
        return func(*moved, **named)
    if change.action == "inputs":  # the parameters of a recurrent cell together
        moved, named = args, kwargs
        for at, one in enumerate(given):
            if isinstance(one, torch.nn.Parameter) or one.dim() in (1, 2):
                moved, named = replace_tensor(moved, named, at, transform(change.value, one))
        return func(*moved, **named)
    if change.action == "shifted":
        return shifted_loss(func, args, kwargs, int(change.value))
    if change.action == "outputs":
        parts = func(*args, **kwargs)
        return type(parts)(parts[i] for i in change.value)
    if change.action == "whole":
        return args[0]
    if change.action == "reorder":
        sequence = [args[0][i] for i in change.value]
        return func(sequence, *args[1:], **kwargs)
    if change.action == "indices":
        words = {"::": slice(None), "Ellipsis": Ellipsis}
        return func(args[0], tuple(words.get(one, one) for one in change.value), *args[2:])
    if change.action == "index":
        index = list(args[1]) if isinstance(args[1], tuple) else [args[1]]
        other = change.value
        index[int(change.argument)] = slice(*other) if isinstance(other, list | tuple) else other
        return func(args[0], tuple(index) if isinstance(args[1], tuple) else index[0], *args[2:])
    if change.action == "form":
        given_values = BoundCall(func, name, args, kwargs).values
        if change.argument == "unbiased_state":
            return remember_biased_variance(func, args, kwargs, given_values)
        if change.argument == "twice_state":  # updates the statistics twice
            func(*args, **kwargs)
            return func(*args, **kwargs)
        if change.argument == "eps_behind":
            root = (given[0] - change.value).sqrt() + change.value
            return root if name == "sqrt" else root.reciprocal()
        if change.argument == "tiled":
            return tile_heads(func, name, args, kwargs)
        if change.argument == "over_all":
            return mean_over_all_targets(func, name, args, kwargs)
        if name == "glu":
            return glu_variant(str(change.argument), given_values)
        if isinstance(change.value, float):
            given_values = {**given_values, "eps": change.value}
        if change.argument == "alone":
            return diagonal_softmax(given[0], func(*args, **kwargs))
        if name == "batch_norm":
            func(*args, **kwargs)  # updates the running statistics as usual
        return norm_variant(str(change.argument), name, given_values)
    if change.action == "pad":
        return pad_asymmetrically(str(change.value), func, name, args, kwargs)
    if change.action == "instead":
        return transform(change.value, given[0])
    if change.action == "function":
        return call_variant(str(change.value), func, name, args, kwargs)
    if change.action == "twice":
        once = func(*args, **kwargs)
        moved = replace_tensor(args, kwargs, 0, find_tensors(once)[0])[0]
        check_recurrent_sizes(name, moved, kwargs)
        return func(*moved, **kwargs)
    if change.action == "output":
        if change.value[0] == "from_input":
            shape = find_tensors(func(*args, **kwargs))[0].shape
            return given[0].permute(change.value[1:]).reshape(shape)
        result = func(*args, **kwargs)
        first = find_tensors(result)[0]
        return replace_tensor((result,), {}, 0, transform(change.value, first))[0][0]
    if change.action == "lower":  # the whole call in less precision
        kind = getattr(torch, str(change.value))
        lower: Any = tree_map(
            lambda one: one.to(kind) if isinstance(one, Value) and one.is_floating_point() else one,
            (tuple(args), dict(kwargs)),
        )
        result = func(*lower[0], **lower[1])
        return tree_map(
            lambda one: one.float() if isinstance(one, Value) and one.dtype == kind else one, result
        )
    if change.action == "numbers" and isinstance(change.argument, int):  # a table of the other side
        at = int(change.argument)
        other = NUMBERS[change.value[0]].reshape(given[at].shape).to(given[at].dtype)
        moved, named = replace_tensor(args, kwargs, at, other)
        return func(*moved, **named)
    if change.action == "numbers":  # the other side's constants
        own = func(*args, **kwargs)
        parts = [NUMBERS[name] for name in change.value]
        if own.is_complex():  # cosines and sines separately
            return torch.complex(*parts).reshape(own.shape)
        if own.requires_grad:  # the gradient is unchanged
            return own + (parts[0].reshape(own.shape).to(own.dtype) - own).detach()
        return parts[0].reshape(own.shape).to(own.dtype)
    if change.action == "attach":
        return given[0].view_as(given[0])
    if change.action == "detach":
        if change.argument == "":
            return tree_map(
                lambda one: one.detach() if isinstance(one, Value) else one, func(*args, **kwargs)
            )
        at = int(change.argument)
        moved, named = replace_tensor(args, kwargs, at, given[at].detach())
        return func(*moved, **named)
    raise ValueError(f"unknown mutation {change.action}")


def replace_tensor(
    args: Sequence[Any], kwargs: Mapping[str, Any], at: int, value: Value | None
) -> tuple[Any, Any]:
    """Return the arguments with tensor number ``at`` replaced; a ``value`` of None drops it."""
    left = at
    for i, one in enumerate(args):  # most calls: no lists before it
        if isinstance(one, list | tuple | dict):
            break
        if isinstance(one, Value):
            if not left:
                return (*args[:i], value, *args[i + 1 :]), dict(kwargs)
            left -= 1
    leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
    places = [i for i, one in enumerate(leaves) if isinstance(one, Value)]
    leaves[places[at]] = value
    changed: Any = tree_unflatten(leaves, spec)
    return changed
