"""dualml: one distributed-ML experiment, two frameworks, one honest report.

This module holds what scripts and notebooks need: `run` trains an experiment, `load` reads finished
runs, and `compare` compares two runs, traces or models. Submodules are imported on first use.
"""

from __future__ import annotations

from dualml.common.former_paths import CORE, install
from dualml.common.version import __version__ as __version__

# Type checkers know this name, so `typing` need not be imported. With `python -m dualml`, imports
# of this file search the current folder first, which is not trusted: see `dualml.__main__`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dualml.interface.api import Run as Run
    from dualml.interface.api import UserError as UserError
    from dualml.interface.api import compare as compare
    from dualml.interface.api import experiments as experiments
    from dualml.interface.api import load as load
    from dualml.interface.api import run as run

install("dualml", CORE)

__all__ = ["Run", "UserError", "compare", "experiments", "load", "run"]


def __getattr__(name: str) -> Any:
    """Import a public name from `dualml.interface.api` on first access."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dualml.interface import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """List the module's names, including the public names that are not imported yet."""
    return sorted({*globals(), *__all__})
