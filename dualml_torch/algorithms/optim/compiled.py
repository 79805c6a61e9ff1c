"""The update of many tensors as one compiled function: traced once, fused by TorchInductor.

`torch.compile` is not used: its guards check every tensor in every call, which for a small model
takes longer than the update. An optimizer knows its tensors, so a key of their layouts suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dualml_torch.algorithms.optim.foreach import List

#: Keys of a parameter group that may change between updates.
VARIABLE_KEYS = ("params", "param_names", "lr", "initial_lr")
OPTIONS = {
    # Elements from which a CPU kernel is split over threads: below, waking them takes longer.
    "cpp.min_chunk_size": 1 << 16,
    # The cache key already checks the layouts.
    "size_asserts": False,
    "alignment_asserts": False,
}
Cache = dict[Any, Callable[..., Any]]


def run_compiled(
    cache: Cache,
    update: Callable[..., None],
    group: Mapping[str, Any],
    numbers: Sequence[float],
    params: List,
    grads: List,
    state: Mapping[str, List],
) -> None:
    """Run ``update(params, grads, state, group, *numbers)`` compiled; it changes ``params`` and
    ``state`` in place. The first call with these parameters, layouts and hyperparameters other than
    the learning rate compiles, for seconds.

    The numbers are passed as a tensor: as Python floats, each new value would trigger a
    compilation. The tensor is float32 if all parameters are, which saves a conversion per vector of
    elements.

    Args:
        cache: compiled functions of one optimizer, emptied whenever its state is replaced.
    """
    constants = tuple((k, _hashable(v)) for k, v in group.items() if k not in VARIABLE_KEYS)
    layouts = [
        (id(p), p.dtype, p.shape, p.stride(), g.stride())
        for p, g in zip(params, grads, strict=True)
    ]
    single = all(layout[1] == torch.float32 for layout in layouts)
    dtype = torch.float32 if single else torch.float64
    given = torch.tensor(numbers, dtype=dtype, device=params[0].device)
    flat = sum(state.values(), [*params, *grads])
    key = (constants, *layouts)
    if key not in cache:
        cache[key] = _compile(update, dict(constants), tuple(state), given, flat)
    cache[key](given, *flat)


def _compile(
    update: Callable[..., None],
    group: dict[str, Any],
    slots: tuple[str, ...],
    numbers: Tensor,
    flat: List,
) -> Callable[..., Any]:
    """Trace ``update`` without executing it and compile the graph; the returned function takes
    ``numbers`` and the tensors ``flat``: parameters, gradients, then the state of each name in
    ``slots``. It updates parameters and state in place. Sets the compiler's global
    ``deterministic`` as torch has it."""
    from torch._inductor import compile as fuse
    from torch._inductor import config

    config.deterministic = torch.are_deterministic_algorithms_enabled()
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(numbers: Tensor, *flat: Tensor) -> tuple[()]:
        n = len(flat) // (2 + len(slots))
        p, g, *tensors = (list(flat[i : i + n]) for i in range(0, len(flat), n))
        state = dict(zip(slots, tensors, strict=True))
        update(p, g, state, group, *numbers.unbind(), workspace=lambda p: None)
        return ()

    graph = make_fx(run, tracing_mode="fake")(numbers, *flat)  # fake: nothing is updated yet
    compiled: Callable[..., Any] = fuse(graph, [numbers, *flat], options=OPTIONS)
    return compiled


def _hashable(value: Any) -> Any:
    """Return a list as a tuple and any other value as it is."""
    return tuple(value) if isinstance(value, list) else value
