"""Optimizer state by state name and canonical parameter name, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml_torch.algorithms.optim.base import RuleOptimizer

Arrays = dict[Any, NDArray[Any]]


def state(optimizer: RuleOptimizer, names: Sequence[Any] | None = None) -> dict[str, Arrays]:
    """Return copies of the state without the step counts: state name → parameter name → array; for
    a parameter without an update, the rule's initial state.

    Args:
        optimizer: one of this package.
        names: one per parameter in the optimizer's order (all groups); their indices if omitted.
    """
    slots: dict[str, Arrays] = {}
    for name, p, group in _named_parameters(optimizer, names):
        tensors = optimizer.state.get(p) or optimizer.initial_state(p, group)
        for slot, tensor in tensors.items():
            if slot != "step":
                slots.setdefault(slot, {})[name] = tensor.cpu().numpy().copy()
    return slots


@torch.no_grad()
def load_state(
    optimizer: RuleOptimizer,
    state: Mapping[str, Mapping[Any, NDArray[Any]]],
    step: int,
    names: Sequence[Any] | None = None,
) -> None:
    """Restore the state of all parameters after update ``step``; with ``step`` 0 all state is
    dropped, a fresh start, and ``state`` is ignored.

    Args:
        optimizer, names: as `state` takes them.
        state: the result of `state`, arrays of the parameters' shapes.

    Raises:
        UserError: a state name or a parameter name is missing, a shape does not match, or there
            are not as many names as parameters.
    """
    loaded = {}
    for name, p, group in _named_parameters(optimizer, names):
        tensors = optimizer.initial_state(p, group)
        for slot, tensor in tensors.items() if step else ():
            array = state.get(slot, {}).get(name)
            if array is None or np.shape(array) != tuple(p.shape):
                shape = None if array is None else np.shape(array)
                raise UserError(
                    f"optimizer state: {slot} of {name!r} must have shape {tuple(p.shape)}; "
                    f"received {shape}"
                )
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(array)))
        loaded[p] = {"step": step, **tensors}
    optimizer.state.clear()
    if step:
        optimizer.state.update(loaded)


def _named_parameters(
    optimizer: RuleOptimizer, names: Sequence[Any] | None
) -> list[tuple[Any, torch.Tensor, dict[str, Any]]]:
    """Return name, parameter and group of all parameters, in the optimizer's order; names are
    numbers from 0 if ``names`` is None. UserError: another number of names than of parameters."""
    pairs = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    names = range(len(pairs)) if names is None else names
    if len(names) != len(pairs):
        raise UserError(f"optimizer state: {len(pairs)} parameters, {len(names)} names")
    return [(name, p, group) for name, (p, group) in zip(names, pairs, strict=True)]
