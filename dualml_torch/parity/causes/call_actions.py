"""The actions by which a mutation changes a function call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from dualml_torch.parity.causes.call_forms import MutationTarget, call_form
from dualml_torch.parity.causes.calls import replace_tensor
from dualml_torch.parity.causes.functions import call_variant, transform
from dualml_torch.parity.causes.layers import (
    check_recurrent_sizes,
    fit_to_shape,
    pad_input,
    shifted_loss,
    zero_state,
)
from dualml_torch.parity.causes.meanings import MEANING_ACTIONS
from dualml_torch.parity.operations import BoundCall, find_tensors

Value = torch.Tensor
#: Large negative number that ports use for masked scores in place of minus infinity.
MASKED = -1e9
#: Arrays of the other side, by its names, that may replace constants of this side.
NUMBERS: dict[str, Value] = {}


class MutatedCall(MutationTarget):
    """A function call and the mutation that is applied to it, its ``change``; one method for each
    action, which returns the result of the mutated call. Tensors are numbered as in ``tensors``,
    all those among the arguments."""

    def set_argument(self) -> Any:
        """Run the call with the argument named ``change.argument`` set to ``change.value``. With
        another ``batch_first`` initial states become zeros that fit; a softmax along another axis
        first raises its input to at least `MASKED`."""
        bound = BoundCall(self.func, self.name, self.args, self.kwargs)
        bound.set_argument(str(self.change.argument), self.change.value)
        if self.change.argument == "batch_first":  # the kernel does not check the state's size
            bound.set_argument(
                "hx",
                tree_map(
                    partial(zero_state, find_tensors(self.args)[0], self.change.value),
                    bound.values["hx"],
                ),
            )
        check_recurrent_sizes(self.name, bound.args, bound.kwargs)
        if self.name == "softmax" and self.change.argument == "dim":
            # Along another axis everything may be masked, for which ports use a large number.
            bound.args[0] = bound.args[0].clamp(min=MASKED)
        return self.func(*bound.args, **bound.kwargs)

    def drop_call(self) -> Any:
        """Return a copy of the tensor number ``change.argument`` (from 0) among the call's
        arguments, in place of the result; the call is not made."""
        return self.tensors[int(self.change.argument)].clone()

    def set_arguments(self) -> Any:
        """Run the call with all settings (name, value) of ``change.value``; the result is cropped
        or padded with zeros at its end, along the axes from 2 on, to the original output's
        shape."""
        bound = BoundCall(self.func, self.name, self.args, self.kwargs)
        for argument, value in self.change.value:
            bound.set_argument(argument, value)
        return fit_to_shape(
            self.func(*bound.args, **bound.kwargs), self.func(*self.args, **self.kwargs).shape
        )

    def omit_tensor(self) -> Any:
        """Run the call with None in place of the tensor number ``change.argument`` (from 0)."""
        moved, named = replace_tensor(self.args, self.kwargs, int(self.change.argument), None)
        return self.func(*moved, **named)

    def exchange_tensors(self) -> Any:
        """Run the call with the two tensors whose numbers (from 0) are ``change.value``
        exchanged."""
        i, j = self.change.value
        moved, named = replace_tensor(self.args, self.kwargs, i, self.tensors[j])
        moved, named = replace_tensor(moved, named, j, self.tensors[i])
        return self.func(*moved, **named)

    def transform_input(self) -> Any:
        """Run the call with the tensor number ``change.argument`` (from 0) transformed by
        ``change.value``, as `transform` takes it."""
        at = int(self.change.argument)
        moved, named = replace_tensor(
            self.args, self.kwargs, at, transform(self.change.value, self.tensors[at])
        )
        check_recurrent_sizes(self.name, moved, named)
        return self.func(*moved, **named)

    def transform_weights(self) -> Any:
        """Run the call with all its parameters, and all other tensors of one or two axes (such as a
        recurrent cell's weights), transformed by ``change.value``, as `transform` takes it."""
        moved, named = self.args, self.kwargs
        for at, one in enumerate(self.tensors):
            if isinstance(one, torch.nn.Parameter) or one.dim() in (1, 2):
                moved, named = replace_tensor(moved, named, at, transform(self.change.value, one))
        return self.func(*moved, **named)

    def shift_labels(self) -> Any:
        """Compute the loss of each token's output with the next token's label, in rows of
        ``change.value`` tokens."""
        return shifted_loss(self.func, self.args, self.kwargs, int(self.change.value))

    def reorder_outputs(self) -> Any:
        """Run the call and return its outputs, a tuple or list, in the order ``change.value``;
        outputs that it does not name are left out."""
        parts = self.func(*self.args, **self.kwargs)
        return type(parts)(parts[i] for i in self.change.value)

    def skip_indexing(self) -> Any:
        """Return the first argument, the whole tensor, in place of the part that the call takes
        from it."""
        return self.args[0]

    def reorder_parts(self) -> Any:
        """Concatenate or stack the parts in the order ``change.value``, numbers from 0 of parts in
        the call's list."""
        sequence = [self.args[0][i] for i in self.change.value]
        return self.func(sequence, *self.args[1:], **self.kwargs)

    def replace_indices(self) -> Any:
        """Index the tensor with the tuple ``change.value``, in which ``::`` is a whole axis."""
        words = {"::": slice(None), "Ellipsis": Ellipsis}
        return self.func(
            self.args[0], tuple(words.get(one, one) for one in self.change.value), *self.args[2:]
        )

    def replace_index(self) -> Any:
        """Index the tensor with the index at position ``change.argument`` (from 0) replaced by
        ``change.value``; a list or tuple as ``change.value`` stands for the arguments of a
        slice."""
        index = list(self.args[1]) if isinstance(self.args[1], tuple) else [self.args[1]]
        other = self.change.value
        index[int(self.change.argument)] = (
            slice(*other) if isinstance(other, list | tuple) else other
        )
        return self.func(
            self.args[0],
            tuple(index) if isinstance(self.args[1], tuple) else index[0],
            *self.args[2:],
        )

    def pad_input(self) -> Any:
        """Run the convolution or pooling with other padding, in the way ``change.value``, see
        `dualml_torch.parity.causes.layers.pad_input`."""
        return pad_input(str(self.change.value), self.func, self.name, self.args, self.kwargs)

    def replace_call(self) -> Any:
        """Return the call's first tensor transformed by ``change.value``, as `transform` takes it;
        the call is not made."""
        return transform(self.change.value, self.tensors[0])

    def replace_function(self) -> Any:
        """Call the function named ``change.value``, of the same family, in place of this one, see
        `call_variant`."""
        return call_variant(str(self.change.value), self.func, self.name, self.args, self.kwargs)

    def call_twice(self) -> Any:
        """Run the call, then run it again with its first output in place of the first tensor;
        return the second result."""
        once = self.func(*self.args, **self.kwargs)
        moved = replace_tensor(self.args, self.kwargs, 0, find_tensors(once)[0])[0]
        check_recurrent_sizes(self.name, moved, self.kwargs)
        return self.func(*moved, **self.kwargs)

    def transform_output(self) -> Any:
        """Run the call and return its result with the first output transformed by ``change.value``,
        as `transform` takes it; for ``("from_input", *order)`` return the first input, with its
        axes in this order, in the output's shape instead."""
        if self.change.value[0] == "from_input":
            shape = find_tensors(self.func(*self.args, **self.kwargs))[0].shape
            return self.tensors[0].permute(self.change.value[1:]).reshape(shape)
        result = self.func(*self.args, **self.kwargs)
        first = find_tensors(result)[0]
        return replace_tensor((result,), {}, 0, transform(self.change.value, first))[0][0]

    def lower_precision(self) -> Any:
        """Run the call with floating-point tensors cast to the type named ``change.value``; results
        of that type return as float32."""
        kind = getattr(torch, str(self.change.value))
        lower: Any = tree_map(
            lambda one: one.to(kind) if isinstance(one, Value) and one.is_floating_point() else one,
            (tuple(self.args), dict(self.kwargs)),
        )
        result = self.func(*lower[0], **lower[1])
        return tree_map(
            lambda one: one.float() if isinstance(one, Value) and one.dtype == kind else one, result
        )

    def replace_constants(self) -> Any:
        """Run the call with an array of the other framework's side, the tensor in `NUMBERS` that
        ``change.value[0]`` names, in place of the tensor number ``change.argument``. If that is no
        number, return such an array in place of the result; gradients flow as through the
        result."""
        if isinstance(self.change.argument, int):  # a table of the other side
            at = int(self.change.argument)
            other = (
                NUMBERS[self.change.value[0]]
                .reshape(self.tensors[at].shape)
                .to(self.tensors[at].dtype)
            )
            moved, named = replace_tensor(self.args, self.kwargs, at, other)
            return self.func(*moved, **named)
        own = self.func(*self.args, **self.kwargs)
        parts = [NUMBERS[each] for each in self.change.value]
        if own.is_complex():  # cosines and sines separately
            return torch.complex(*parts).reshape(own.shape)
        if own.requires_grad:  # the gradient is unchanged
            return own + (parts[0].reshape(own.shape).to(own.dtype) - own).detach()
        return parts[0].reshape(own.shape).to(own.dtype)

    def set_norm_axis(self) -> Any:
        """Run a weight norm along the axis ``change.value[0]``, with the lengths in `NUMBERS` of
        the name ``change.value[1]``, which are the other framework's."""
        axis, name = self.change.value
        v = self.tensors[0]
        return self.func(v, NUMBERS[name].to(v), int(axis))

    def copy_input(self) -> Any:
        """Return a view of the first tensor in place of the result, connected to the graph; the
        call is not made."""
        return self.tensors[0].view_as(self.tensors[0])

    def detach_tensor(self) -> Any:
        """Run the call with the tensor number ``change.argument`` (from 0) detached; if that is an
        empty string, all results are detached instead."""
        if self.change.argument == "":
            return tree_map(
                lambda one: one.detach() if isinstance(one, Value) else one,
                self.func(*self.args, **self.kwargs),
            )
        at = int(self.change.argument)
        moved, named = replace_tensor(self.args, self.kwargs, at, self.tensors[at].detach())
        return self.func(*moved, **named)


#: Action of a mutation → the method that applies it.
ACTIONS: dict[str, Callable[[Any], Any]] = {
    "set": MutatedCall.set_argument,
    "drop": MutatedCall.drop_call,
    "settings": MutatedCall.set_arguments,
    "omit": MutatedCall.omit_tensor,
    "exchange": MutatedCall.exchange_tensors,
    "input": MutatedCall.transform_input,
    "inputs": MutatedCall.transform_weights,
    "shifted": MutatedCall.shift_labels,
    "outputs": MutatedCall.reorder_outputs,
    "whole": MutatedCall.skip_indexing,
    "reorder": MutatedCall.reorder_parts,
    "indices": MutatedCall.replace_indices,
    "index": MutatedCall.replace_index,
    "form": call_form,
    "pad": MutatedCall.pad_input,
    "instead": MutatedCall.replace_call,
    "function": MutatedCall.replace_function,
    "twice": MutatedCall.call_twice,
    "output": MutatedCall.transform_output,
    "lower": MutatedCall.lower_precision,
    "lower_span": MutatedCall.lower_precision,
    "numbers": MutatedCall.replace_constants,
    "norm_axis": MutatedCall.set_norm_axis,
    "attach": MutatedCall.copy_input,
    "detach": MutatedCall.detach_tensor,
    **MEANING_ACTIONS,
}
