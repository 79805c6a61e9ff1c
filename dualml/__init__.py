"""dualml: one distributed-ML experiment, two frameworks, one honest report.

What a script or a notebook needs is here: `run` trains an experiment, `load` reads what runs have
left, `compare` judges two runs, traces or models. Nothing is imported before it is asked for.
"""

from __future__ import annotations

from dualml.version import __version__ as __version__

# The name is what type checkers know. With `python -m dualml`, what this file imports is taken from
# the current folder first, whoever's it is (`dualml.__main__` ends that).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dualml.api import Run as Run
    from dualml.api import UserError as UserError
    from dualml.api import compare as compare
    from dualml.api import experiments as experiments
    from dualml.api import load as load
    from dualml.api import run as run

__all__ = ["Run", "UserError", "compare", "experiments", "load", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dualml import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
