"""Helpers of the API: import optional libraries, accept one value or many."""

from __future__ import annotations

import importlib
from typing import Any

from dualml.common.errors import UserError


def import_optional(module: str) -> Any:
    """Import a module of an optional library (pandas or Matplotlib).

    Raises:
        UserError: the library is not installed; for one of its dependencies `ModuleNotFoundError`.
    """
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise UserError(
            f"this needs {library}, which is not installed: pip install 'dualml[notebook]'"
        ) from None


def as_list(values: Any) -> list[Any]:
    """Return the values as a list: a single text or integer becomes a list of one, None an empty
    list."""
    if values is None:
        return []
    return [values] if isinstance(values, str | int) else list(values)
