"""Former import paths of public modules: ``dualml.optim`` is ``dualml.algorithms.optim``.

The same module object answers to both names, so classes compare equal whichever path they were
imported by. New code imports the present path, which type checkers know.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec

# Names for annotations alone: with `python -m dualml` an import would look into the current folder.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any

#: Former module, without the top-level package → where it is now.
CORE = {
    "aggregation": "parallel.aggregation",
    "api": "interface.api",
    "checkpoint": "runner.checkpoint",
    "communicator": "algorithms.communicator",
    "cost": "planning.cost",
    "data": "experiment.data",
    "errors": "common.errors",
    "model": "algorithms.model",
    "optim": "algorithms.optim",
    "partition": "parallel.partition",
    "reference": "backend.reference",
    "split": "parallel.split",
    "store": "experiment.store",
    "testing": "parity.testing",
    "zero": "parallel.zero",
}
BACKEND = {
    "communicator": "algorithms.communicator",
    "data": "experiment.data",
    "optim": "algorithms.optim",
    "partition": "parallel.partition",
}


class FormerPathLoader:
    """Hands out the module that its present name gives."""

    def __init__(self, present: str) -> None:
        self.present = present

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its present name and return it; its own spec is kept for
        `exec_module`."""
        self.module = importlib.import_module(self.present)
        self.spec = self.module.__spec__
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification that the import system has just overwritten; the module itself
        is not executed again."""
        module.__spec__ = self.spec


class FormerPathFinder:
    """Finds modules of one top-level package by their former names.

    Args:
        package: the top-level package.
        moved: former name below it → present name below it.
    """

    def __init__(self, package: str, moved: Mapping[str, str]) -> None:
        self.package, self.moved = package, moved

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec that loads the module of the present name; None if ``fullname`` is no
        former path. ``path`` and ``target`` are ignored."""
        package, _, rest = fullname.partition(".")
        first, dot, below = rest.partition(".")
        if package != self.package or first not in self.moved:
            return None
        present = f"{package}.{self.moved[first]}{dot}{below}"
        loader: Any = FormerPathLoader(present)
        return ModuleSpec(fullname, loader, is_package=True)


def install(package: str, moved: Mapping[str, str]) -> None:
    """Let ``package`` answer to its former paths, by a finder in `sys.meta_path`; once, however
    often it is called.

    Args:
        package: the top-level package.
        moved: former name below it → present name below it.
    """
    found = any(isinstance(f, FormerPathFinder) and f.package == package for f in sys.meta_path)
    if not found:
        sys.meta_path.insert(0, FormerPathFinder(package, moved))
