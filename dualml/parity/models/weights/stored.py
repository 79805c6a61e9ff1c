"""Tensors of weight files, of any format, each of which is read when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import open_to_read
from dualml.common.tensor_files import DTYPES, read_into

Shape = tuple[int, ...]
BFLOAT16 = "BF16"
#: Types of numbers that a parameter of real numbers can have, in safetensors' words.
FLOATS = ("F16", BFLOAT16, "F32", "F64")


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a weight file.

    Attributes:
        kind: type of numbers, named as in safetensors: ``F32``, ``BF16``, ``I64``, …
        read_bits: reads and returns the tensor, an array of its shape; bfloat16 as uint16.
    """

    kind: str
    shape: Shape
    read_bits: Callable[[], NDArray[Any]] = field(compare=False)

    def read(self) -> NDArray[Any]:
        """Read the tensor and return it as a new array; bfloat16 becomes float32, which has all its
        values."""
        bits = self.read_bits()
        if self.kind == BFLOAT16:
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return bits


@dataclass(frozen=True)
class WeightFiles:
    """The weights in a file or folder; its tensors are not read yet.

    Attributes:
        path: the file or folder as the user named it.
        format: ``safetensors``, ``ckpt`` or ``npz``.
        tensors: name → tensor.
        files: all files that were opened.
    """

    path: Path
    format: str
    tensors: Mapping[str, FileTensor]
    files: tuple[Path, ...]

    def rename(self, prefix: str) -> WeightFiles:
        """Return these weights with other names of the tensors; names that do not begin with OLD
        stay.

        Args:
            prefix: ``OLD=NEW``: names that begin with OLD begin with NEW; ``OLD`` or ``OLD=``
                removes OLD.

        Raises:
            UserError: no name begins with OLD, or two tensors would have one name.
        """
        old, _, new = prefix.partition("=")
        names = [
            new + name.removeprefix(old) if name.startswith(old) else name for name in self.tensors
        ]
        if not any(name.startswith(old) for name in self.tensors):
            first = next(iter(self.tensors), "none")
            raise UserError(
                f"--weights-prefix {prefix}: no name in {self.path} begins with {old!r}; "
                f"the first is {escape_unprintable(first)}"
            )
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"--weights-prefix {prefix}: two tensors would be {twice}")
        renamed = dict(zip(names, self.tensors.values(), strict=True))
        return WeightFiles(self.path, self.format, renamed, self.files)


@dataclass(frozen=True)
class FileBytes:
    """The numbers of a tensor in one or more places of a file, in C order.

    Attributes:
        places: offset and number of bytes of each part.
        kind: type of numbers, named as in safetensors.
    """

    path: Path
    places: tuple[tuple[int, int], ...]
    kind: str
    shape: Shape

    def read(self) -> NDArray[Any]:
        """Read all parts into a new array of the tensor's shape; bfloat16 as uint16.

        Raises:
            UserError: the file cannot be read any more, or was truncated.
        """
        dtype = "uint16" if self.kind == BFLOAT16 else DTYPES[self.kind]
        array = np.empty(self.shape, dtype)
        flat, start = array.reshape(-1).view(np.uint8), 0
        try:
            with open_to_read(self.path) as file:
                for offset, size in self.places:
                    file.seek(offset)
                    read_into(file, flat[start : start + size])
                    start += size
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path} cannot be read any more: {error}") from None
        return array

    def as_tensor(self) -> FileTensor:
        """Return the `FileTensor` that reads these bytes when it is read."""
        return FileTensor(self.kind, self.shape, self.read)
