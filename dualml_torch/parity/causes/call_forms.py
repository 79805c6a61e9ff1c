"""Other forms of functions: with other divisors, epsilons or layouts of the same arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from dualml.parity.causes.mutation import Mutation
from dualml_torch.parity.causes.functions import diagonal_softmax
from dualml_torch.parity.causes.layers import (
    glu_variant,
    mean_over_targets,
    norm_variant,
    tile_heads,
    update_with_biased_variance,
)
from dualml_torch.parity.operations import BoundCall, find_tensors

Value = torch.Tensor


@dataclass(frozen=True, eq=False)
class MutationTarget:
    """A function call and the mutation that is applied to it."""

    change: Mutation
    func: Any
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @cached_property
    def tensors(self) -> list[Value]:
        """All tensors among the arguments, in order; mutations count positions in this list."""
        return find_tensors((self.args, self.kwargs))


def call_form(call: MutationTarget) -> Any:
    """Run the call in another form, named by ``change.argument``, and return the result: with
    another divisor, epsilon, layout or gradient, or twice (``twice_state``); a float
    ``change.value`` is the epsilon."""
    given_values = BoundCall(call.func, call.name, call.args, call.kwargs).values
    if call.change.argument == "unbiased_state":
        return update_with_biased_variance(call.func, call.args, call.kwargs, given_values)
    if call.change.argument == "twice_state":  # updates the statistics twice
        call.func(*call.args, **call.kwargs)
        return call.func(*call.args, **call.kwargs)
    if call.change.argument == "eps_behind":
        root = (call.tensors[0] - call.change.value).sqrt() + call.change.value
        return root if call.name == "sqrt" else root.reciprocal()
    if call.change.argument == "tiled":
        return tile_heads(call.func, call.name, call.args, call.kwargs)
    if call.change.argument in ("over_all", "over_count"):
        bound = BoundCall(call.func, call.name, call.args, call.kwargs)
        return mean_over_targets(call.func, bound, call.change.argument == "over_all")
    if call.name == "glu":
        return glu_variant(str(call.change.argument), given_values)
    if isinstance(call.change.value, float):
        given_values = {**given_values, "eps": call.change.value}
    if call.change.argument == "alone":
        return diagonal_softmax(call.tensors[0], call.func(*call.args, **call.kwargs))
    if call.name == "batch_norm":
        call.func(*call.args, **call.kwargs)  # updates the running statistics as usual
    return norm_variant(str(call.change.argument), call.name, given_values)
