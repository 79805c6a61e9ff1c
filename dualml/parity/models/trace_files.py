"""The files with a trace's arrays: one for a small trace, several with an index for a large one.

A small trace is collected in memory and is one file, ``trace.safetensors``. As soon as it is larger
than `SMALL_BYTES`, its arrays are appended to that file as they arise, and each later write adds
another file, ``trace-00002.safetensors``. ``trace.safetensors.index.json`` then says where each
array is, in the form of Hugging Face's sharded checkpoints. Arrays of a large trace are read one
by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import read_tensors
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import read_json, write_bytes, write_json
from dualml.common.tensor_files import LazyArrays, TensorFileWriter, TensorOnDisk, index_tensors

ARRAYS = "trace.safetensors"
INDEX = "trace.safetensors.index.json"
#: Bytes up to which a trace's arrays are held in memory.
SMALL_BYTES = 64 << 20
#: Bytes that the header of a file reserves for each array: its name, type, shape and place.
HEADER_BYTES_PER_ARRAY = 192
#: Number of arrays of a first step besides those of parameters, for which a header reserves bytes.
EXPECTED_ARRAYS = 4096
UNREADABLE = "not a readable trace"


class TraceArrays(LazyArrays):
    """The arrays of a trace that is being recorded into a folder.

    Args:
        folder: for the files; made if needed.
        small: bytes up to which arrays stay in memory; None: `SMALL_BYTES`.

    Attributes:
        failure: what the user is told if an array could not be written. A framework may replace an
            error that is raised inside of its own calls, so the recorder looks here, too.
    """

    def __init__(self, folder: Path, small: int | None = None) -> None:
        super().__init__()
        self.folder, self.small = folder, SMALL_BYTES if small is None else small
        self.nbytes = 0
        self.memory: dict[str, NDArray[Any]] = {}
        self.writer: TensorFileWriter | None = None
        self.files: dict[str, list[str]] = {}  # finished file → names of its arrays
        self.failure: UserError | None = None

    @property
    def is_on_disk(self) -> bool:
        """Whether arrays are written at once, so that the caller need not copy them."""
        return self.nbytes > self.small

    def store(self, key: str, array: NDArray[Any]) -> None:
        """Add an array, or replace the one of this key.

        Raises:
            UserError: it cannot be written.
        """
        self.nbytes += array.nbytes
        if not self.is_on_disk:
            self.memory[key] = array
            self.add(key, array.shape, lambda: array)
            return
        try:
            for name in list(self.memory):
                self.append(name, self.memory.pop(name))
            self.append(key, array)
        except OSError as error:
            raise self.fail(error) from None

    def append(self, key: str, array: NDArray[Any]) -> None:
        """Append an array to the current file."""
        if self.writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            number = len(self.files) + 1
            name = ARRAYS if number == 1 else f"trace-{number:05d}.safetensors"
            reserve = HEADER_BYTES_PER_ARRAY * max(EXPECTED_ARRAYS, 2 * len(self))
            self.writer = TensorFileWriter(self.folder / name, reserve)
        self.add(key, array.shape, self.writer.append(key, array))

    def fail(self, error: OSError) -> UserError:
        """Return what the user is told about an error of the disk, and keep it as `failure`."""
        self.failure = UserError(
            f"the trace cannot be written to {self.folder}: {error.strerror or error}, after "
            f"{self.nbytes / 1e9:.2f} GB; give it a larger disk with folder= or TMPDIR, or record "
            "less: fewer steps, no optimizer, or loss='none'"
        )
        return self.failure

    def move_to_end(self, keys: Iterable[str]) -> None:
        """Let these arrays be the last ones in the order of the mapping."""
        for key in keys:
            self.entries[key] = self.entries.pop(key)

    def link(self, folder: Path) -> bool:
        """Complete the files and let another folder have them, too, without a copy.

        Returns:
            False if this file system cannot do that, or there are several files.
        """
        self.write()
        try:
            (folder / ARRAYS).hardlink_to(self.folder / ARRAYS)
        except (OSError, NotImplementedError):
            return False
        return len(self.files) == 1

    def write(self) -> None:
        """Write what the files lack, so that another process can read all arrays.

        Raises:
            UserError: there is no space left.
        """
        try:
            if not self.is_on_disk:
                self.folder.mkdir(parents=True, exist_ok=True)
                remove_index(self.folder)
                write_small(self.folder, self.memory)
            elif self.writer is not None:
                if not self.files:
                    remove_index(self.folder)
                self.files[self.writer.path.name] = list(self.writer.entries)
                self.writer.finish()
                self.writer = None
                if len(self.files) > 1:
                    write_index(self.folder, self.files, self.nbytes)
        except OSError as error:
            raise self.fail(error) from None


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into an existing folder, in one file; large ones are read one by one.

    Raises:
        UserError: there is no space left.
    """
    writer = TraceArrays(folder)
    for name, value in arrays.items():
        writer.store(name, value)
    writer.write()


def write_small(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``trace.safetensors`` at once, atomically."""
    from safetensors.numpy import save

    # np.array: safetensors writes the memory of a transposed array in the wrong order.
    whole = {name: np.array(value, order="C") for name, value in arrays.items()}
    write_bytes(folder / ARRAYS, save(whole))


def write_index(folder: Path, files: Mapping[str, Sequence[str]], nbytes: int) -> None:
    """Write the index of a trace of several files: file → names of its arrays."""
    places = {name: file for file, names in files.items() for name in names}
    metadata = {"total_size": nbytes}
    write_json(folder / INDEX, {"metadata": metadata, "weight_map": places})


def remove_index(folder: Path) -> None:
    """Delete the index and the further files of an earlier trace in this folder."""
    if (folder / INDEX).exists():
        (folder / INDEX).unlink()
        for left in folder.glob("trace-[0-9]*.safetensors"):
            left.unlink()


def open_arrays(folder: Path, names: Sequence[str]) -> Mapping[str, NDArray[Any]]:
    """Return the named arrays of a trace, in this order: read at once if they are small, else each
    when it is looked up.

    Raises:
        UserError: a file is missing or damaged, or lacks an array.
    """
    files = [ARRAYS]
    if (folder / INDEX).is_file():
        places = read_json(folder / INDEX)["weight_map"]
        files = list(dict.fromkeys(str(file) for file in places.values()))
        if any(Path(file).name != file for file in files):
            raise ValueError(f"{INDEX} names files of another folder")
    first = folder / ARRAYS
    if files == [ARRAYS] and not (first.is_file() and first.stat().st_size > SMALL_BYTES):
        loaded = read_tensors(first, UNREADABLE)
        check_names(folder, names, loaded)
        return {name: loaded[name] for name in names}
    known: dict[str, TensorOnDisk] = {}
    for file in files:
        known |= index_tensors(folder / file, UNREADABLE)
    check_names(folder, names, known)
    arrays = LazyArrays()
    for name in names:
        arrays.add(name, known[name].shape, known[name].read)
    return arrays


def check_names(folder: Path, names: Iterable[str], known: Mapping[str, Any]) -> None:
    """Raise `UserError` if a trace's files lack some of its arrays."""
    missing = [name for name in names if name not in known]
    if missing:
        raise UserError(
            f"{folder / ARRAYS}: {escape_unprintable(missing[0])} and {len(missing) - 1} more "
            "missing"
        )
