"""The labs that have exercises, by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dualml.common.errors import UserError, did_you_mean
from dualml.course import __path__
from dualml.course.exercise import ExerciseFile, Lab

ORDER = (
    *("lab1", "lab2", "lab3", "lab4", "methods", "memory", "checkpoint", "rnn_ps"),
    *("accumulation", "loader", "bottleneck"),
)
#: Modules of `dualml.course` in this installation.
PRESENT_LABS = {module.name for module in pkgutil.iter_modules(__path__)}
LABS = tuple(name for name in ORDER if name in PRESENT_LABS)


@cache
def load_lab(name: str) -> Lab:
    """Load the exercises of a lab.

    Raises:
        UserError: there is no lab of that name.
    """
    if name not in LABS:
        raise UserError(f"no exercises of {name!r}{did_you_mean(name, LABS)}")
    found: Lab = importlib.import_module(f"dualml.course.{name}").LAB
    return found


def find_exercise(name: str) -> tuple[Lab, ExerciseFile]:
    """Find the lab and the exercise of a file, ``optim_torch.py`` or ``optim_torch``.

    Raises:
        UserError: there is no such exercise.
    """
    known = {f.task: (load_lab(one), f) for one in LABS for f in load_lab(one).files}
    task = name.removesuffix(".py")
    if task not in known:
        raise UserError(f"no exercise is called {name!r}{did_you_mean(task, known)}")
    return known[task]
