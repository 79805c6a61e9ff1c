"""Tensor files of a trial: the final weights, and the trace under ``PHASE/STEP/TENSOR``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save

from dualml.common.arrays import Arrays as Arrays
from dualml.common.arrays import read_tensors
from dualml.common.errors import UserError
from dualml.common.files import write_bytes

KEY = r"^(forward|gradient|update|state)/\d{8}/.+$"
TraceKey = Annotated[str, Field(pattern=KEY)]


@dataclass(frozen=True)
class TraceTensorFile:
    """One kind of safetensors file of a trial, called ``name`` in a folder."""

    name: str

    def write(self, folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write arrays, by name, to the file in ``folder``, in place of an earlier one."""
        write_bytes(folder / self.name, save(dict(arrays)))

    def read(self, folder: Path) -> Arrays:
        """Read the arrays by name; raise `UserError` if the file is missing or damaged."""
        return read_tensors(folder / self.name)


WEIGHTS = TraceTensorFile("weights.safetensors")
TRACE = TraceTensorFile("trace.safetensors")


def read_weights(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Read the final weights from ``folder``, in the order of ``shapes`` (name → shape), which the
    file does not keep; other tensors in it are left out.

    Raises:
        UserError: the file is missing, damaged, or holds another model.
    """
    path, arrays = folder / WEIGHTS.name, WEIGHTS.read(folder)
    for name, shape in shapes.items():
        if name not in arrays:
            raise UserError(f"{path}: {name} is missing")
        check_shape(path, name, arrays[name], shape)
    return {name: arrays[name] for name in shapes}


def read_trace(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Read the tensors of the traced updates from ``folder``, ``PHASE/STEP/TENSOR`` → array.

    Args:
        shapes: parameter → its shape, which its gradient and its updated value share.

    Raises:
        UserError: the file is missing, damaged, or of another model.
    """
    path, arrays = folder / TRACE.name, TRACE.read(folder)
    for key, array in arrays.items():
        if not re.match(KEY, key):
            raise UserError(f"{path}: {key!r} is no PHASE/STEP/TENSOR")
        phase, _, tensor = key.split("/", 2)
        if phase in ("gradient", "update") and tensor in shapes:
            check_shape(path, key, array, shapes[tensor])
    return arrays


def check_shape(path: Path, name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise `UserError`, with file and name, if an array's shape is not ``shape``, the plan's."""
    if array.shape != tuple(shape):
        raise UserError(f"{path}: {name} has the shape {array.shape}; the plan says {shape}")
