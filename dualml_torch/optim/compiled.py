"""The update of many tensors as one function for `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from dualml_torch.optim.foreach import List

NOT_CONSTANT = ("params", "param_names", "lr", "initial_lr")
# Elements from which a CPU kernel is split over threads: below, waking them takes longer.
OPTIONS = {"cpp.min_chunk_size": 1 << 16}
Cache = dict[Any, Callable[..., None]]


def run_compiled(
    cache: Cache,
    update: Callable[..., None],
    group: Mapping[str, Any],
    numbers: Sequence[float],
    params: List,
    grads: List,
    state: Mapping[str, List],
) -> None:
    """``update(params, grads, state, group, *numbers)``, compiled.

    The numbers go in as a tensor: as Python floats each new value would be compiled anew. In single
    precision where all parameters are, which spares a conversion per vector of elements. The
    tensors go in as one flat row of arguments: the compiler's guards check that fastest.
    """
    constants = tuple((k, _hashable(v)) for k, v in group.items() if k not in NOT_CONSTANT)
    key = (constants, *map(id, params))
    if key not in cache:
        cache[key] = _compile(update, dict(constants), tuple(state))
    flat = sum(state.values(), [*params, *grads])
    single = all(p.dtype == torch.float32 for p in params)
    dtype = torch.float32 if single else torch.float64
    cache[key](torch.tensor(numbers, dtype=dtype, device=params[0].device), *flat)


def _compile(
    update: Callable[..., None], group: dict[str, Any], slots: tuple[str, ...]
) -> Callable[..., None]:
    def run(numbers: Tensor, *flat: Tensor) -> None:
        n = len(flat) // (2 + len(slots))
        p, g, *tensors = (list(flat[i : i + n]) for i in range(0, len(flat), n))
        state = dict(zip(slots, tensors, strict=True))
        update(p, g, state, group, *numbers.unbind(), room=lambda p: None)

    # The compiler counts recompilations per code object, and all closures made here would share
    # one: unrelated optimizers could use up the limit. A copy of the code gives each its own.
    own = FunctionType(run.__code__.replace(), run.__globals__, "run", None, run.__closure__)
    return torch.compile(own, dynamic=False, fullgraph=True, options=OPTIONS)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
