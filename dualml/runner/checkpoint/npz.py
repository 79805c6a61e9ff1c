"""NumPy archives, read one array at a time without pickle, and written in pieces."""

from __future__ import annotations

import functools
import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from dualml.common.arrays import check_memory, check_unpacked, read_member
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import convert_read_errors, open_to_read
from dualml.runner.checkpoint.boxes import IndexBox
from dualml.runner.checkpoint.kinds import BITS, EXACT, STORAGE_DTYPES, Array, kind_of
from dualml.runner.checkpoint.stored_checkpoint import StoredShard, StoredTensor
from dualml.runner.checkpoint.writing import PlannedTensor


class Archive:
    """An open NumPy archive, for reading. Its attribute `array` is `read` with a cache of the array
    that was read last, because slices of it are read one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = zipfile.ZipFile(open_to_read(path))
        self.array = functools.lru_cache(maxsize=1)(self.read)

    def read(self, member: str) -> Array:
        """Read one array, by the name of its member (with ``.npy``), in C order; not from the
        cache, which `array` has.

        Raises:
            UserError: it is damaged, too large for the memory, or of a type that no tensor has.
        """
        info = self.file.getinfo(member)
        with convert_read_errors(f"{self.path}: {member} is not readable"):
            check_unpacked(info.file_size, info.compress_size)
            check_memory(info.file_size, f"{self.path}: {member}")
            array = read_member(self.file, info)
            if (kind := kind_of(array.dtype)) is None:
                raise ValueError(f"its type {array.dtype} is none of tensors")
            return np.ascontiguousarray(array, STORAGE_DTYPES[kind]).reshape(array.shape)


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of an archive by name, without ``.npy``; only the headers are read yet.

    Raises:
        UserError: the file is not an archive of arrays, or an array has a type that no tensor has.
    """
    with convert_read_errors(f"{path}: not a readable .npz"):
        archive = Archive(path)
        names = archive.file.namelist()
        if len({name.removesuffix(".npy") for name in names}) < len(names):
            raise ValueError("two arrays of one name")
        shapes = {name: read_header(archive, name) for name in names}
    result = {}
    for name, (shape, dtype) in shapes.items():
        shown = escape_unprintable(name.removesuffix(".npy"))
        if (kind := kind_of(dtype)) is None:
            why = "holds Python objects, which are a pickle" if dtype.hasobject else "is no tensor"
            raise UserError(f"{path}: {shown} of type {dtype} {why} and is not read")
        shard = StoredShard(path, IndexBox.full(shape), functools.partial(archive.array, name))
        result[name.removesuffix(".npy")] = StoredTensor(kind, shape, (shard,))
    return result


def is_pickled(path: Path) -> bool:
    """Return whether an archive was written by `torch.save`."""
    with (
        convert_read_errors(f"{path}: not a readable archive"),
        open_to_read(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        return any(name.endswith("data.pkl") for name in archive.namelist())


def read_header(archive: Archive, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an array of the archive; its data are not read.

    Raises:
        ValueError: the length of its data does not match; not checked for Python objects.
    """
    with archive.file.open(name) as file:
        first = npy.read_magic(file) == (1, 0)  # type: ignore[no-untyped-call]
        read: Any = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        there = archive.file.getinfo(name).file_size - file.tell()
    wrong = math.prod(shape) * dtype.itemsize != there or min(shape, default=0) < 0
    if wrong and not dtype.hasobject:
        raise ValueError(f"{name} has another length than its header says")
    return tuple(shape), dtype


def write_archive(path: Path, planned: Mapping[str, PlannedTensor]) -> None:
    """Write a new archive, uncompressed, and flush it to the disk.

    Raises:
        UserError: a tensor has a type that NumPy lacks, or a name that archives truncate.
        OSError: among others, the disk is full.
    """
    if lost := [name for name, tensor in planned.items() if tensor.kind in BITS]:
        kinds = sorted({planned[name].kind for name in lost})
        raise UserError(
            f"NumPy has no {' and no '.join(kinds)}, of which {escape_unprintable(lost[0])} is "
            f"(and {len(lost) - 1:,} more): convert to safetensors, which passes them bit for bit"
        )
    if lost := [name for name in planned if "\0" in name]:
        raise UserError(
            f"no array of an .npz can be called {escape_unprintable(lost[0])}, with a zero in it: "
            "convert to safetensors"
        )
    with path.open("xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, tensor in planned.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    dtype = EXACT[tensor.kind].str
                    described = {"descr": dtype, "fortran_order": False, "shape": tensor.shape}
                    npy.write_array_header_1_0(member, described)  # type: ignore[no-untyped-call]
                    write_pieces(member, tensor.pieces())
        file.flush()
        os.fsync(file.fileno())


def write_pieces(member: Any, pieces: Iterable[Array]) -> None:
    """Write the pieces of an array, one after the other, into the open member of an archive."""
    for piece in pieces:
        member.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
