"""Gradient clipping by the user's own optimizer, replaced by another rule."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn import utils

#: torch's gradient clipping functions; their second argument is the limit.
NAMES = ("clip_grad_norm_", "clip_grad_value_")


@contextlib.contextmanager
def replace_clipping(optimizer: Any, way: str, value: float) -> Iterator[None]:
    """Replace torch's gradient clipping functions inside the block, in `torch.nn.utils` and in the
    module of the optimizer's class alone.

    Args:
        way: ``none`` (no clipping), ``each`` (every gradient by its own norm), ``value``
            (elementwise), ``squared`` (by the squared norm), ``limit`` (to the limit ``value``),
            ``eps`` (``value`` is added to the norm).
        value: only used by ``limit`` and ``eps``.
    """
    spaces = [vars(utils), vars(sys.modules[type(optimizer).__module__])]
    kept = [
        (space, key, function)
        for name in NAMES
        for space in spaces
        for key, function in list(space.items())
        if function is vars(utils)[name]
    ]
    for space, key, function in kept:
        space[key] = make_clipping(function, way, value)
    try:
        yield
    finally:
        for space, key, function in kept:
            space[key] = function


def make_clipping(function: Callable[..., Any], way: str, value: float) -> Callable[..., Any]:
    """Make a clipping function of another rule, see `replace_clipping`; like torch's, it clips in
    place and returns the total norm before."""

    @torch.no_grad()
    def clip(parameters: Any, limit: float, *args: Any, **kwargs: Any) -> torch.Tensor:
        chosen: Iterable[torch.Tensor] = (
            [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        )
        given = [p for p in chosen if p.grad is not None]
        total = torch.stack([p.grad.norm() for p in given]).norm()  # type: ignore[union-attr]
        if way == "limit":
            function(given, value, *args, **kwargs)
        for p in given:
            assert p.grad is not None
            if way == "each":
                p.grad.mul_(torch.clamp(limit / (p.grad.norm() + 1e-6), max=1.0))
            elif way == "value":
                p.grad.clamp_(-limit, limit)
            elif way == "eps":
                p.grad.mul_(torch.clamp(limit / (total + value), max=1.0))
            elif way == "squared":
                p.grad.mul_(torch.clamp(limit / (total**2 + 1e-6), max=1.0))
        return total

    return clip
