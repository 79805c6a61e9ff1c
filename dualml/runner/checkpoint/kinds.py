"""Element types: safetensors' names, and the NumPy dtypes that hold their bits.

NumPy has no bfloat16 and no 8-bit floats. Their bits are held as unsigned integers of the same
width, so that they pass through unchanged; `to_numbers` converts them where numbers are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError

Array = NDArray[Any]
#: Element types that NumPy supports, little-endian as in the files.
EXACT: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
BITS: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    **dict.fromkeys(
        ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), np.dtype("u1")
    ),
}
#: Element type → NumPy dtype of the same width that stores its bits.
STORAGE_DTYPES = EXACT | BITS


def kind_of(dtype: np.dtype[Any]) -> str | None:
    """Return safetensors' name (such as ``F32``) for a NumPy dtype in either byte order, or None if
    it has none. Types that NumPy lacks, such as ``BF16``, are never returned."""
    native = dtype.newbyteorder("<")
    return next((kind for kind, own in EXACT.items() if own == native), None)


def to_numbers(kind: str, held: Array, name: str) -> Array:
    """Convert the stored bits of a tensor to numbers: bfloat16 to float32, which represents all its
    values; element types that NumPy has are returned unchanged. ``name`` is for messages.

    Raises:
        UserError: NumPy has no dtype for these numbers, such as 8-bit floats.
    """
    if kind in EXACT:
        return held
    if kind == "BF16":  # the upper half of float32
        return (held.astype(np.uint32) << np.uint32(16)).view(np.float32)
    raise UserError(f"{name} is {kind}, which NumPy cannot compute with; read its bits")
