"""Tensors in one safetensors file, or in several with an index in the form of Hugging Face.

The first file has the name of the single one, ``x.safetensors``, and further ones a number,
``x-00002.safetensors``, so that none is renamed while more are added.
``x.safetensors.index.json`` says which file has which tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dualml.common.arrays import read_tensors
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import read_json, write_json
from dualml.common.tensor_files import LazyArrays, TensorOnDisk, index_tensors


def shard_path(path: Path, number: int) -> Path:
    """Return the path of file ``number``, from 1, of tensors in several files: ``path`` itself for
    the first, ``x-00002.safetensors`` beside it for the second."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number:05d}{path.suffix}")


def index_path(path: Path) -> Path:
    """Return the path of the index of the tensors whose first file is at ``path``."""
    return path.with_name(f"{path.name}.index.json")


def write_index(path: Path, files: Mapping[str, Sequence[str]], nbytes: int) -> None:
    """Write the index of the tensors at ``path``, a JSON file that says which file has which
    tensor.

    Args:
        path: the first file of the tensors.
        files: name of each file → names of its tensors.
        nbytes: bytes of all tensors.

    Raises:
        OSError: there is no space left.
    """
    places = {name: file for file, names in files.items() for name in names}
    write_json(index_path(path), {"metadata": {"total_size": nbytes}, "weight_map": places})


def remove_index(path: Path) -> None:
    """Delete the index of the tensors at ``path``, and all of their files but the first; nothing if
    there is no index."""
    if index_path(path).exists():
        index_path(path).unlink()
        for left in path.parent.glob(f"{path.stem}-[0-9]*{path.suffix}"):
            left.unlink()


def open_arrays(
    path: Path, names: Sequence[str], small: int, what: str
) -> Mapping[str, NDArray[Any]]:
    """Return some of the tensors at ``path``, in the order of ``names``, as arrays.

    Args:
        small: bytes of a single file up to which it is read at once; else a tensor is read when it
            is looked up.
        what: words of the message after the path, if a file cannot be read.

    Raises:
        UserError: a file is missing or damaged, or lacks a tensor.
        ValueError: the index leads out of the folder.
    """
    files = [path.name]
    if index_path(path).is_file():
        places = read_json(index_path(path))["weight_map"]
        files = list(dict.fromkeys(str(file) for file in places.values()))
        if any(Path(file).name != file for file in files):
            raise ValueError(f"{index_path(path).name} names files of another folder")
    if files == [path.name] and not (path.is_file() and path.stat().st_size > small):
        loaded = read_tensors(path, what)
        check_names(path, names, loaded)
        return {name: loaded[name] for name in names}
    known: dict[str, TensorOnDisk] = {}
    for file in files:
        known |= index_tensors(path.with_name(file), what)
    check_names(path, names, known)
    arrays = LazyArrays()
    for name in names:
        arrays.add(name, known[name].shape, known[name].read)
    return arrays


def check_names(path: Path, names: Iterable[str], known: Mapping[str, Any]) -> None:
    """Raise `UserError`, with ``path`` and the first missing name, if some of ``names`` are not in
    ``known``."""
    missing = [name for name in names if name not in known]
    if missing:
        raise UserError(
            f"{path}: {escape_unprintable(missing[0])} and {len(missing) - 1} more missing"
        )
