"""Modules and parameters that occur in several places of a model, and mutations of that sharing."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from dualml.parity.causes.mutation import Mutation


def shared_names(model: torch.nn.Module) -> dict[str, dict[str, tuple[int, ...]]]:
    """Map every further name of a module or parameter that the model has under an earlier name to
    the parameters below it: their names there and shapes. Names inside such a module, and modules
    without parameters, are left out."""
    seen: set[int] = set()
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        inside = any(f"{name}.".startswith(f"{known}.") for known in found)
        if id(module) in seen and not inside:
            found[name] = {f"{name}.{n}": tuple(p.shape) for n, p in module.named_parameters()}
        seen.add(id(module))
    parameters: set[int] = set()
    for name, p in model.named_parameters(remove_duplicate=False):
        inside = any(f"{name}.".startswith(f"{known}.") for known in found)
        if id(p) in parameters and not inside:
            found[name] = {name: tuple(p.shape)}
        parameters.add(id(p))
    return {name: below for name, below in found.items() if below}


@contextlib.contextmanager
def mutate_sharing(
    model: torch.nn.Module, changes: Sequence[Mutation], values: Mapping[str, torch.Tensor]
) -> Iterator[list[torch.nn.Parameter]]:
    """Mutate the sharing of modules inside the block, and undo it at its end: share modules (action
    ``share``: pairs of a place and the module that replaces it), copy them (``untie``: places) or
    give them a bias (``bias``: modules). Yields the new parameters.

    Args:
        values: name of a new parameter → its initial value.
    """
    kept: list[tuple[Any, str, Any]] = []
    fresh: list[torch.nn.Parameter] = []
    try:
        for change in changes:
            if change.action == "bias":
                for place in change.value:
                    module = model.get_submodule(place)
                    kept.append((module, "bias", module.bias))
                    module.bias = torch.nn.Parameter(values[f"{place}.bias"].clone())
                    fresh.append(module.bias)
                continue
            for place in change.value:
                own, other = (place, None) if isinstance(place, str) else place
                head, _, leaf = own.rpartition(".")
                parent = model.get_submodule(head)
                old = getattr(parent, leaf)
                kept.append((parent, leaf, old))
                if other is not None:
                    setattr(parent, leaf, model.get_submodule(other))
                    continue
                new = copy.deepcopy(old)
                setattr(parent, leaf, new)
                single = isinstance(new, torch.nn.Parameter)
                rows = (
                    {own: new}
                    if single
                    else {f"{own}.{name}": p for name, p in new.named_parameters()}
                )
                fresh += rows.values()
                with torch.no_grad():
                    for name, p in rows.items():
                        p.copy_(values[name])
        yield fresh
    finally:
        for parent, leaf, old in reversed(kept):
            setattr(parent, leaf, old)
