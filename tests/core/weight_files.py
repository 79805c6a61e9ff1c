"""Weight files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from dualml.parity.models.partners import Tensor
from dualml.parity.models.weights.fitting import SideModel
from dualml.parity.models.weights.mindspore_file import CheckpointWriter

Arrays = dict[str, NDArray[Any]]


def draw_arrays(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Return normal numbers of these shapes, always the same."""
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_ckpt(path: Path, arrays: Arrays) -> Path:
    """Write a MindSpore checkpoint of float32 arrays."""
    writer = CheckpointWriter(path)
    for name, array in arrays.items():
        writer.append(name, "F32", array)
    writer.finish()
    return path


def write_shards(folder: Path, shards: list[Arrays], *, index: bool = True) -> Path:
    """Write safetensors files and their index as transformers does, and return the folder."""
    import json

    folder.mkdir()
    places = {}
    for i, arrays in enumerate(shards, 1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(arrays, folder / name)
        places |= dict.fromkeys(arrays, name)
    if index:
        text = json.dumps({"metadata": {}, "weight_map": places})
        (folder / "model.safetensors.index.json").write_text(text)
    return folder


def side_model(label: str, shapes: dict[str, tuple[int, ...]]) -> SideModel:
    """Return a side whose tensors are all trained and have one name each."""
    tensors = [Tensor(name, shape) for name, shape in shapes.items()]
    return SideModel(label, tensors, {name: [name] for name in shapes})
