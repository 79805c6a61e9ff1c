"""The labs that have exercises, by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dualml.course import __path__
from dualml.course.exercise import File, Lab
from dualml.errors import UserError, nearest

ORDER = ("lab1", "lab2", "lab3", "lab4", "methods", "memory")
#: Modules of `dualml.course` in this installation.
THERE = {module.name for module in pkgutil.iter_modules(__path__)}
LABS = tuple(name for name in ORDER if name in THERE)


@cache
def lab(name: str) -> Lab:
    """Load the exercises of a lab.

    Raises:
        UserError: there is no lab of that name.
    """
    if name not in LABS:
        raise UserError(f"no exercises of {name!r}{nearest(name, LABS)}")
    found: Lab = importlib.import_module(f"dualml.course.{name}").LAB
    return found


def file(name: str) -> tuple[Lab, File]:
    """Find the lab and the exercise of a file, ``optim_torch.py`` or ``optim_torch``.

    Raises:
        UserError: there is no such exercise.
    """
    known = {f.task: (lab(one), f) for one in LABS for f in lab(one).files}
    task = name.removesuffix(".py")
    if task not in known:
        raise UserError(f"no exercise is called {name!r}{nearest(task, known)}")
    return known[task]
