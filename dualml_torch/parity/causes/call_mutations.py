"""One function call under one mutation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map

from dualml.parity.causes.mutation import Mutation
from dualml_torch.parity.causes.call_actions import ACTIONS, MutatedCall
from dualml_torch.parity.rng import apply_dropout

Draw = Callable[[tuple[int, ...]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class MutatedFunction:
    """A function under one mutation, to call in its place; several mutations of one call are
    nested.

    Attributes:
        draw: returns uniform numbers of a shape, for a Dropout.
    """

    change: Mutation
    func: Any
    name: str
    draw: Draw

    @property
    def original(self) -> Any:
        """The innermost function, without any mutation around it."""
        return getattr(self.func, "original", self.func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.change.action == "dropout":
            x = self.func(*args, **kwargs)
            return apply_dropout(torch.from_numpy(self.draw(tuple(x.shape))), x, self.change.value)
        return call_mutated(self.change, self.func, self.name, args, kwargs)


def replace_constant(
    change: Mutation, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Return the arguments with each float equal to c = ``change.old`` replaced by
    ``change.value``, and each equal to 1 − c by 1 − ``change.value``, inside of lists, tuples and
    dicts, too."""
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
    """Return the result of calling ``func``, the operation ``name``, under one mutation, by its
    action in `ACTIONS`.

    Raises:
        ValueError: an unknown action.
        Exception: the framework's own error if the mutation is impossible.
    """
    if change.action not in ACTIONS:
        raise ValueError(f"unknown mutation {change.action}")
    return ACTIONS[change.action](MutatedCall(change, func, name, args, kwargs))
