"""Loaded by Python itself in the processes of a planted trial: patches a backend after its import.

``DUALML_PLANTED=BACKEND:PLANT`` selects backend and plant; processes of other backends are
unchanged.
"""

import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path

PACKAGES = {"torch": "dualml_torch", "mindspore": "dualml_ms"}
SIDES = {"torch": "in_torch", "mindspore": "in_mindspore"}


class Changed(importlib.abc.MetaPathFinder):
    """An import finder that runs the plant right after ``PACKAGE.backend`` was imported."""

    def __init__(self, backend: str, plant: str) -> None:
        self.target, self.side, self.plant = f"{PACKAGES[backend]}.backend", SIDES[backend], plant

    def find_spec(self, name, path=None, target=None):
        if name != self.target:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
            plants = importlib.import_module(f"planted.{self.side}")
            sys.path.pop(0)
            plants.plant(self.plant)

        spec.loader.exec_module = exec_module
        return spec


if told := os.environ.get("DUALML_PLANTED"):
    sys.meta_path.insert(0, Changed(*told.split(":")))
