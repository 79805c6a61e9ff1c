"""Optimizer state by state name and canonical parameter name, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.tensor_files import LazyArrays
from dualml_ms.algorithms.optim.base import RuleOptimizer

Arrays = dict[Any, NDArray[Any]]


def state(optimizer: RuleOptimizer, names: Sequence[Any] | None = None) -> dict[str, Arrays]:
    """Return copies of the state: state name → parameter name → array; before the first update, the
    rule's initial state.

    Arrays are float64 if the kernel stores a multiple of the state, so that `load_state` restores
    every bit.

    Args:
        optimizer: one of this package.
        names: one per parameter in the optimizer's order (all groups); their indices if omitted.
    """
    lazy = lazy_state(optimizer, names)
    return {slot: dict(arrays) for slot, arrays in lazy.items()}


def lazy_state(
    optimizer: RuleOptimizer, names: Sequence[Any] | None = None
) -> dict[str, LazyArrays]:
    """Return the state as `state` does, with arrays that are copied when they are looked up: those
    of a large model do not fit into memory together."""
    names = _check_names(optimizer, names)

    def copy_array(parameter: ms.Parameter, unit: float) -> NDArray[Any]:
        """Return a copy of a state in the units of the rule."""
        value = parameter.asnumpy().copy()
        return value if unit == 1.0 else value.astype(np.float64) / unit

    slots: dict[str, LazyArrays] = {}
    for slot in optimizer.rule.state_keys:
        unit, arrays = optimizer.state_unit(slot), LazyArrays()
        for name, parameter in zip(names, getattr(optimizer, slot), strict=True):
            arrays.add(name, tuple(parameter.shape), partial(copy_array, parameter, unit))
        slots[slot] = arrays
    return slots


def load_state(
    optimizer: RuleOptimizer,
    state: Mapping[str, Mapping[Any, NDArray[Any]]],
    step: int,
    names: Sequence[Any] | None = None,
) -> None:
    """Restore the state and the optimizer's count of updates after update ``step``; step 0 is a
    fresh start, for which ``state`` is ignored.

    Args:
        optimizer, names: as `state` takes them.
        state: the result of `state`, arrays of the parameters' shapes.

    Raises:
        UserError: a state name or a parameter name is missing, a shape does not match, or the
            number of ``names`` is not that of the parameters.
    """
    names = _check_names(optimizer, names)
    start = optimizer.rule.init(
        {n: p.asnumpy() for n, p in zip(names, optimizer.parameters, strict=True)}
    )
    loaded = []
    for slot in optimizer.rule.state_keys:
        for name, kept in zip(names, getattr(optimizer, slot), strict=True):
            array = (state if step else start).get(slot, {}).get(name)
            if array is None or np.shape(array) != tuple(kept.shape):
                shape = None if array is None else np.shape(array)
                raise UserError(
                    f"optimizer state: {slot} of {name!r} must have shape {tuple(kept.shape)}; "
                    f"received {shape}"
                )
            value = np.asarray(array, np.float64) * optimizer.state_unit(slot)
            loaded.append((kept, value.astype(np.float32)))
    # In place: a compiled branch continues to use its memory, even after `set_data`.
    for kept, value in loaded:
        ops.assign(kept, ms.Tensor(value))
    ops.assign(optimizer.global_step, ms.Tensor([step], ms.int32))


def _check_names(optimizer: RuleOptimizer, names: Sequence[Any] | None) -> Sequence[Any]:
    """Return one name per parameter, indices by default; raise `UserError` for another number of
    names."""
    names = range(optimizer.size) if names is None else names
    if len(names) != optimizer.size:
        raise UserError(f"optimizer state: {optimizer.size} parameters, {len(names)} names")
    return names
