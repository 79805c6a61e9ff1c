"""What several files of the API need: libraries that are not always there, one value or many."""

from __future__ import annotations

import importlib
from typing import Any

from dualml.errors import UserError


def needed(module: str) -> Any:
    """A module of pandas or Matplotlib.

    Raises:
        UserError: the library is not installed.
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


def listed(values: Any) -> list[Any]:
    """One value alone is a list of one, None an empty one."""
    if values is None:
        return []
    return [values] if isinstance(values, str | int) else list(values)
