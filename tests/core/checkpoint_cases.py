"""Slices that ranks hold, for checkpoint tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.parallel.split.mesh import Mesh
from dualml.runner.checkpoint import Slice, open_checkpoint, save
from dualml.runner.checkpoint.manifest import LOCK

Arrays = dict[str, np.ndarray]
MESH = Mesh(data=2, pipeline=1, tensor=2)


def arrays(scale: float = 1.0) -> Arrays:
    """Return weights and state of a layer: columns and rows are split over ranks, a step count is
    not."""
    draw = np.random.default_rng(7)
    return {
        "weights/up.weight": (scale * draw.normal(size=(8, 6))).astype(np.float32),
        "weights/down.weight": (scale * draw.normal(size=(6, 8))).astype(np.float32),
        "weights/norm.bias": (scale * draw.normal(size=6)).astype(np.float32),
        "state/exp_avg/up.weight": scale * draw.normal(size=(8, 6)),
        "half": (scale * draw.normal(size=(4, 4))).astype(np.float16),
        "count": np.array(12, np.int64),
        "nothing": np.zeros((0, 3), np.float32),
    }


def on_mesh(rank: int, given: Arrays, mesh: Mesh = MESH) -> list[Slice]:
    """Return the slices of a rank of the mesh: rows of ``up``, columns of ``down``, and the rest
    whole."""
    tensor = mesh.coordinates(rank)[2]
    slices = []
    for name, array in given.items():
        axis = {"up": 0, "down": 1}.get(name.partition(".")[0].rpartition("/")[2])
        if axis is None:
            slices.append(Slice.full(name, array))
            continue
        size = array.shape[axis] // mesh.tensor
        offset = [0] * array.ndim
        offset[axis] = tensor * size
        part = np.take(array, range(tensor * size, (tensor + 1) * size), axis)
        slices.append(Slice(name, array.shape, tuple(offset), part))
    return slices


def save_on(
    size: int, slices: Callable[[int], Iterable[Slice]], folder: Path, step: int = 10, **more: Any
) -> None:
    """Save a checkpoint on ``size`` ranks of the reference."""
    run_threads(size, lambda comm: save(comm, slices(comm.rank), folder, step=step, **more), 20)


def assert_equal(found: Any, expected: Arrays) -> None:
    """Assert that a checkpoint has exactly these tensors, bit for bit."""
    assert set(found.tensors) == set(expected)
    for name, array in expected.items():
        read = found.read(name, raw=True)
        assert read.dtype == array.dtype, name
        assert read.shape == array.shape, name
        assert read.tobytes() == array.tobytes(), name


def files_of(folder: Path) -> Sequence[str]:
    """Return all files of a checkpoint except the lock."""
    return sorted(
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_file() and p.name != LOCK
    )


def read_refusal(path: Path) -> str:
    """Return the one-line error of a checkpoint that is refused."""
    with pytest.raises(UserError) as error:
        open_checkpoint(path)
    assert "\n" not in str(error.value)
    return str(error.value)
