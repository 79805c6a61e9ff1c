"""One call of a step, stored so that it can be run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from dualml.parity.models.operations import is_unknown

Value = torch.Tensor


class ReplayableCall:
    """A stored call, with its tensors by name.

    Args:
        func, name: the function, and the name of the operation.
        leaves, spec: the arguments (args, kwargs), flattened by torch's ``tree_flatten``; None in
            place of a tensor that has a name.
        names: position among the leaves → name of the tensor there.
    """

    #: Running statistics, which the call updates in place: name → tensor.
    buffers: Mapping[str, Value] = {}

    def __init__(
        self, func: Any, name: str, leaves: list[Any], spec: Any, names: Mapping[int, str]
    ) -> None:
        self.func, self.name, self.leaves, self.spec = func, name, leaves, spec
        self.names = list(names.items())
        positional, named = spec.unflatten(range(len(leaves)))
        flat = all(isinstance(i, int) for i in (*positional, *named.values()))
        #: Leaf positions of the arguments, None if an argument has several leaves.
        self.leaf_positions = (list(positional), dict(named)) if flat else None
        whether = [*positional, *named.values()] if flat else []
        self.writes_arguments = (
            name.endswith("_")
            or name == "batch_norm"
            or any(leaves[i] is True for i in whether)  # it may be ``inplace``
        )

    @classmethod
    def from_arguments(
        cls,
        func: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        source: Callable[[Value], str],
    ) -> ReplayableCall:
        """Store a call whose tensors are known by name (``source``: tensor → name); tensors without
        a name are stored as they are, and so are a batch norm's running statistics, in
        `buffers`."""
        leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
        names, buffers = {}, {}
        for i, one in enumerate(leaves):
            if not isinstance(one, Value) or is_unknown(known := source(one)):
                continue
            buffer = known.startswith("parameter:") and not isinstance(one, torch.nn.Parameter)
            if name == "batch_norm" and buffer:
                buffers[known] = one
                continue
            names[i], leaves[i] = known, None
        call = cls(func, name, leaves, spec, names)
        call.buffers = buffers
        return call

    def fill_arguments(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments, rebuilt from their leaves, the values inside all
        lists, tuples and dicts in order."""
        if self.leaf_positions is None:
            args, kwargs = tree_unflatten(leaves, self.spec)
            return list(args), kwargs
        positional, named = self.leaf_positions
        return [leaves[i] for i in positional], {key: leaves[i] for key, i in named.items()}


def replace_tensor(
    args: Sequence[Any], kwargs: Mapping[str, Any], at: int, value: Value | None
) -> tuple[Any, Any]:
    """Return positional and keyword arguments with tensor number ``at``, from 0 in the order in
    which they occur, also inside of lists, replaced by ``value``, which may be None."""
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
