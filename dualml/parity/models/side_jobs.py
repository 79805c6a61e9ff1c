"""The sides of a comparison as jobs: which backend runs them, in which processes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo
from dualml.common.errors import UserError, did_you_mean
from dualml.common.machine import python_argv
from dualml.launch.process import Launch
from dualml.parity.models.interpreter import user_paths
from dualml.parity.models.model_ref import COMPARING_VARIABLE
from dualml.parity.models.sides import (
    FRAMEWORKS,
    LETTERS,
    ResolvedSide,
    Side,
    coarsest_precision,
    label_sides,
    resolve_side,
)
from dualml.parity.models.source_frameworks import find_framework

#: End of the name of the file in which a worker leaves the framework that its model belongs to.
FRAMEWORK_NOTE = ".framework"
#: What a backend's module ``models`` must have, see `dualml.parity.models.worker.ModelBackend`.
MODELS_MODULE = (
    "Recorder, prepare, building, tensor, optimizer, step, losses, train, is_model, move, "
    "load_checkpoint"
)


def name_frameworks(
    things: Sequence[Any], models: Sequence[Mapping[str, Any]], sides: Sequence[Side]
) -> tuple[str, str]:
    """Return the name of each side's framework: the one that the user names, or else that the
    model's source shows, or else ``torch`` for the first and ``mindspore`` for the second.

    Args:
        things: the two models as the user passed them.
        models: their import specs.
    """
    first, second = (
        side.framework or find_framework(thing, model) or usual
        for side, thing, model, usual in zip(sides, things, models, FRAMEWORKS, strict=True)
    )
    return first, second


def require_backends(names: Sequence[str], known: Mapping[str, BackendInfo]) -> list[BackendInfo]:
    """Return the backends of the first and the second side.

    Args:
        names: names of the frameworks of both sides.
        known: all backends by name.

    Raises:
        UserError: a framework is unknown or not installed (the message has the command that
            installs it), or its backend cannot record models (the message says what it lacks).
    """
    for letter, name in zip(LETTERS, names, strict=True):
        if name not in known:
            raise UserError(
                f"--{letter}-framework: there is no backend {name!r}{did_you_mean(name, known)}"
            )
    missing = list(dict.fromkeys(name for name in names if not known[name].installed()))
    if missing:
        listed = " and ".join(f"{known[x].framework} ({known[x].install})" for x in missing)
        both = "both frameworks are" if len({*names}) > 1 else "the framework is"
        raise UserError(f"{both} needed to compare models; install {listed}")
    for name in names:
        package = known[name].package
        if name not in FRAMEWORKS and not has_module(f"{package}.models"):
            raise UserError(
                f"the backend {name} cannot record models: {package} has no module models with "
                f"{MODELS_MODULE}"
            )
    return [known[name] for name in names]


def has_module(name: str) -> bool:
    """Return whether a module exists, without importing it; the packages that contain it are
    imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def resolve_sides(
    sides: Sequence[Side],
    infos: Sequence[BackendInfo],
    models: Sequence[Mapping[str, Any]],
    overlay: Path,
) -> list[ResolvedSide]:
    """Check the settings of both sides, see `resolve_side`, and return them in the user's order."""
    return [
        resolve_side(*given, overlay) for given in zip(sides, LETTERS, infos, models, strict=True)
    ]


def add_functions(
    sides: Sequence[ResolvedSide], losses: Sequence[Any], optimizers: Sequence[Any]
) -> tuple[ResolvedSide, ResolvedSide]:
    """Return both sides with losses, optimizers and labels, in the order of the result: if only the
    second one is PyTorch, it comes first, because its names are used and its model can be mutated.

    Args:
        losses, optimizers: loss and optimizer of each side, in the user's order.
    """
    first, second = (
        replace(side, loss=loss, optimizer=optimizer)
        for side, loss, optimizer in zip(sides, losses, optimizers, strict=True)
    )
    if second.info.name == FRAMEWORKS[0] != first.info.name:
        first, second = second, first
    return label_sides(first, second)


def describe_sides(sides: Sequence[ResolvedSide]) -> dict[str, Any]:
    """Return the part of a job that describes its two sides.

    Returns:
        ``sides``: description of each side by letter; ``precision``: precision to which initial
            weights and inputs are rounded; ``seeded``: whether the framework's own random numbers,
            seeded, are drawn on both sides, because a compiled PyTorch model draws no others;
            ``keeps_attention``: whether fused attention runs in the framework's kernel, because
            both sides have the same framework.
    """
    described = {}
    for letter, side in zip(LETTERS, sides, strict=True):
        described[letter] = side.describe()
        if side.interpreter is not None:
            paths = (str(Path(place or ".").resolve()) for place in sys.path)
            described[letter]["path"] = user_paths(paths)
    compiled = any(side.is_compiled for side in sides)
    alike = len({side.info.name for side in sides}) == 1
    return {
        "sides": described,
        "precision": coarsest_precision(sides),
        "seeded": compiled and alike and sides[0].info.name == FRAMEWORKS[0],
        "keeps_attention": alike,
    }


def reuse_freed_memory() -> dict[str, str]:
    """Return environment variables with which the C library keeps the memory of freed tensors for
    the next ones, however large; what the user has set stays.

    By default it returns the memory of large tensors to the system and gets it again page by page,
    which takes longer than what most kernels do with it.
    """
    asked = {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_ARENA_MAX": "1",  # the arenas of other threads hold no large tensors
    }
    return {name: os.environ.get(name, value) for name, value in asked.items()}


def make_launch(
    side: ResolvedSide, words: Sequence[str], threads: int, log: Path, *, reuses: bool = True
) -> Launch:
    """Return the description of a process in a side's interpreter, which is not started yet.

    Args:
        words: the module that it runs, and its arguments.
        threads: number of threads that it computes with.
        log: file for its standard error.
        reuses: whether it keeps freed memory (see `reuse_freed_memory`), which saves time but may
            fragment where tensors have many sizes.
    """
    memory = reuse_freed_memory() if reuses else {}
    environ = {**memory, **side.info.environ(threads), COMPARING_VARIABLE: "1"}
    if side.interpreter is None:
        # What a backend preloads behind its own module is for optimizers.
        more = side.info.preload[1:] if side.optimizer else ()
        preload = (f"{side.info.package}.models", *more) if side.info.preload else ()
        return Launch(python_argv("-m", *words), environ, log, preload)
    command = [side.interpreter.path, "-P", "-m", *words]
    return Launch(command, {**environ, "PYTHONPATH": side.overlay}, log)


def correct_frameworks(
    folder: Path, resolved: Sequence[ResolvedSide], sides: Sequence[Side], names: tuple[str, str]
) -> tuple[str, str] | None:
    """Return the names of both frameworks as the models turned out to be, after a process of a side
    failed; None if they are as assumed, or if the user named the framework of a side whose model
    belongs to another.

    Args:
        folder: folder of the comparison, where the processes ran.
        resolved: both sides as they ran.
        sides: both sides as the user set them.
        names: the frameworks that were assumed.
    """
    actual = read_frameworks(folder, resolved)
    if not actual or any(sides[LETTERS.index(one)].framework for one in actual):
        return None
    first, second = (actual.get(letter, name) for letter, name in zip(LETTERS, names, strict=True))
    return first, second


def read_frameworks(folder: Path, sides: Sequence[ResolvedSide]) -> dict[str, str]:
    """Return letter of a side, as the user named it → the framework that its model turned out to
    belong to; sides whose framework is right, or that left no note in the folder, are left out."""
    found = {}
    for letter, side in zip(LETTERS, sides, strict=True):
        note = folder / f"{letter}{FRAMEWORK_NOTE}"
        if note.is_file() and (name := note.read_text("utf-8").strip()) != side.info.name:
            found[side.letter] = name
    return found
