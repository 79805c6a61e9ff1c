"""Check and convert the arguments of a model comparison: arrays, losses, optimizers, the map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.optim import rule_from
from dualml.common.errors import UserError, did_you_mean
from dualml.parity.models.mapping import ParameterMap
from dualml.parity.models.model_ref import to_import_spec
from dualml.parity.models.worker import check_targets

LOSSES = ("cross_entropy", "mse", "probe", "none")


def check_margin(margin: float) -> None:
    """Raise `UserError` unless the margin is a finite number above 0."""
    if not 0 < margin < math.inf:
        raise UserError(f"margin must be a finite number above 0; received {margin}")


def to_arrays(inputs: Any, what: str) -> list[NDArray[Any]]:
    """Return the inputs as a list of arrays, in the order of ``forward``'s arguments, see
    `to_array`. A list of numbers, also nested, is one array; a tuple, or a list of arrays, is
    several.

    Args:
        what: name of the argument in error messages.

    Raises:
        UserError: a dict, no array at all, or something that holds no numbers.
    """
    if isinstance(inputs, Mapping):
        raise UserError(f"{what} must be arrays in the order of forward's arguments; not a dict")
    # A list of numbers, or of lists of them, is one array.
    several = isinstance(inputs, tuple) or (
        isinstance(inputs, list)
        and not all(isinstance(one, int | float | list | tuple) for one in inputs)
    )
    arrays = [to_array(one, what) for one in (inputs if several else [inputs])]
    if not arrays:
        raise UserError(f"{what}: at least one array")
    return arrays


def to_array(value: Any, what: str) -> NDArray[Any]:
    """Convert an array, a number or a nested list of numbers to a NumPy array of float32, int64 or
    bool; raise `UserError` for anything else, such as a tensor.

    Args:
        what: name of the argument in error messages.
    """
    if not isinstance(value, np.ndarray | list | tuple | int | float | np.generic):
        kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        kind = kind.removeprefix("builtins.")
        raise UserError(f"{what} must be NumPy arrays; received a {kind}")
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind != "b":
        raise UserError(f"{what} must hold numbers; received dtype {array.dtype}")
    return array


def resolve_losses(loss: Any, target: NDArray[Any] | None) -> list[Any]:
    """Return the loss of each side, in order: twice a name, or the import specs of two functions.

    Args:
        loss: a name, a pair of functions, or None for ``probe``.
        target: the targets; ``cross_entropy`` and ``mse`` need them, other names refuse them.

    Raises:
        UserError: an unknown name, targets that it cannot take, or neither a name nor a pair of
            functions.
    """
    if loss is None or isinstance(loss, str):
        word = loss or "probe"
        if word not in LOSSES:
            hint = did_you_mean(word, LOSSES)
            raise UserError(f"unknown loss {word!r}: a name or a pair of functions{hint}")
        if word in ("cross_entropy", "mse"):
            check_targets(word, target)
        elif target is not None:
            raise UserError(f"loss {word!r} takes no targets; say which loss, or leave them out")
        return [word, word]
    return resolve_pair(loss, "loss", "of (outputs, targets)")


def resolve_optimizers(optimizer: Any) -> list[Any]:
    """Return the optimizer of each side, in order: twice ``{"rule": …}`` for dualml's own, the
    import specs of two functions, or twice None.

    Args:
        optimizer: settings of a rule, a pair of functions, or None.

    Raises:
        UserError: anything else, an invalid rule, or a function that another process cannot import.
    """
    if optimizer is None:
        return [None, None]
    if isinstance(optimizer, Mapping):
        rule_from(optimizer)
        return [{"rule": dict(optimizer)}] * 2
    if isinstance(optimizer, str):
        raise UserError(
            f'optimizer {optimizer!r}: one of dualml\'s own is {{"name": "adam", "lr": 1e-3}}, the '
            "frameworks' are a pair of functions of the list of parameters, PyTorch's first"
        )
    return resolve_pair(optimizer, "optimizer", "of the list of parameters")


def resolve_pair(pair: Any, what: str, arguments: str) -> list[Any]:
    """Return the import specs of a pair of functions; raise `UserError` if it is no pair, or if
    another process cannot import one of them.

    Args:
        what: name of the argument in error messages.
        arguments: the arguments of the functions, for error messages.
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(
            f"{what} must be a pair of functions {arguments}, PyTorch's first; "
            f"received {type(pair).__name__}"
        )
    return [to_import_spec(one, f"{what}[{i}]") for i, one in enumerate(pair)]


def serialize_map(asked: ParameterMap | None) -> dict[str, Any]:
    """Return the user's map of parameters as a dict for JSON, with lists in place of tuples; empty
    for None."""
    return {name: p if isinstance(p, str) else list(p) for name, p in (asked or {}).items()}
