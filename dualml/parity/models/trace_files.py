"""The files with a trace's arrays: one for a small trace, several with an index for a large one.

A small trace is collected in memory and is one file, ``trace.safetensors``. As soon as it is larger
than `SMALL_BYTES`, its arrays are appended to that file as they arise, and each later write adds
another file, ``trace-00002.safetensors``. ``trace.safetensors.index.json`` then says where each
array is, in the form of Hugging Face's sharded checkpoints. Arrays of a large trace are read one
by one.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.common.tensor_files import LazyArrays, TensorFileWriter
from dualml.common.tensor_shards import remove_index, shard_path, write_index

ARRAYS = "trace.safetensors"
#: Beginning of the names of the folders of temporary traces.
TEMPORARY = ".run-"
#: Bytes up to which a trace's arrays are held in memory.
SMALL_BYTES = 64 << 20
#: Bytes that the header of a file reserves for each array: its name, type, shape and place.
HEADER_BYTES_PER_ARRAY = 192
#: Number of arrays of a first step besides those of parameters, for which a header reserves bytes.
EXPECTED_ARRAYS = 4096


class TraceArrays(LazyArrays):
    """The arrays of a trace that is being recorded into a folder, in memory while they are small.

    Args:
        folder: folder for the files; made if needed.
        small: bytes up to which arrays stay in memory; None: `SMALL_BYTES`.

    Attributes:
        failure: the error for the user if an array could not be written; else None. A framework may
            replace an error that is raised inside of its own calls, so the recorder looks here,
            too.
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
        """Whether arrays are written to the disk as they are stored, so that the caller need not
        copy them."""
        return self.nbytes > self.small

    def store(self, key: str, array: NDArray[Any]) -> None:
        """Add an array, or replace the one of this key. Arrays up to ``small`` bytes in total are
        kept in memory, without a copy; then all are written to the disk.

        Raises:
            UserError: an array cannot be written.
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
        """Append an array to the file that is being written, which is made if needed; raise
        `OSError` if the disk fails."""
        if self.writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            number = len(self.files) + 1
            reserve = HEADER_BYTES_PER_ARRAY * max(EXPECTED_ARRAYS, 2 * len(self))
            self.writer = TensorFileWriter(shard_path(self.folder / ARRAYS, number), reserve)
        self.add(key, array.shape, self.writer.append(key, array))

    def fail(self, error: OSError) -> UserError:
        """Return the error for the user about an error of the disk, and keep it as `failure`."""
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
        """Complete the files and make a hard link to the arrays' file in another folder, without a
        copy.

        Returns:
            Whether the other folder now has all arrays: False if this file system cannot do that,
                or if there are several files.
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
                remove_index(self.folder / ARRAYS)
                write_single_file(self.folder, self.memory)
            elif self.writer is not None:
                if not self.files:
                    remove_index(self.folder / ARRAYS)
                self.files[self.writer.path.name] = list(self.writer.entries)
                self.writer.finish()
                self.writer = None
                if len(self.files) > 1:
                    write_index(self.folder / ARRAYS, self.files, self.nbytes)
        except OSError as error:
            raise self.fail(error) from None


def make_temporary_arrays(folder: Path) -> TraceArrays:
    """Return the arrays of a trace that is recorded into a new folder inside ``folder``; the new
    folder is deleted as soon as nobody refers to the arrays.

    Raises:
        OSError: the folder cannot be made.
    """
    place = Path(tempfile.mkdtemp(dir=folder, prefix=TEMPORARY))
    arrays = TraceArrays(place)
    weakref.finalize(arrays, shutil.rmtree, place, ignore_errors=True)
    return arrays


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into a folder, which is made if needed: in one file while they are small, else
    one by one to the disk.

    Raises:
        UserError: there is no space left.
    """
    writer = TraceArrays(folder)
    for name, value in arrays.items():
        writer.store(name, value)
    writer.write()


def write_single_file(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``trace.safetensors`` into an existing folder at once, atomically."""
    from safetensors.numpy import save

    # np.array: safetensors writes the memory of a transposed array in the wrong order.
    whole = {name: np.array(value, order="C") for name, value in arrays.items()}
    write_bytes(folder / ARRAYS, save(whole))
