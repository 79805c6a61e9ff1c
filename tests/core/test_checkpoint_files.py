"""Safetensors files: compatible with the library, with all dtypes, and damaged ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dualml.algorithms.precision.types import round_to_type
from dualml.common.arrays import read_tensors
from dualml.common.errors import UserError
from dualml.runner.checkpoint import open_checkpoint, writing
from dualml.runner.checkpoint.kinds import EXACT, STORAGE_DTYPES, kind_of
from dualml.runner.checkpoint.writing import PlannedTensor, write_safetensors


def planned(array: Any, kind: str = "") -> PlannedTensor:
    kind = kind or str(kind_of(array.dtype))
    return PlannedTensor(kind, array.shape, lambda: iter([array]))


def raw(path: Path, header: Any, data: bytes) -> Path:
    """Write a safetensors file with the given header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def arrays() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    values = {
        kind: draw.integers(0, 2, (3, 4)).astype(dtype)
        if kind == "BOOL"
        else draw.integers(0, 100, (3, 4)).astype(dtype)
        for kind, dtype in EXACT.items()
    }
    return {**values, "scalar": np.array(2.5), "empty": np.zeros((0, 3), np.float32)}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    given = arrays()
    write_safetensors(tmp_path / "a", {n: planned(a) for n, a in given.items()}, {"format": "pt"})
    read = load_file(tmp_path / "a")
    assert read.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    given = arrays()
    save_file(given, tmp_path / "a.safetensors")
    checkpoint = open_checkpoint(tmp_path / "a.safetensors")
    assert checkpoint.tensors.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(checkpoint.read(name), array)
    np.testing.assert_array_equal(
        checkpoint.read("F32", [slice(1, 3), slice(-1, None)]), given["F32"][1:3, -1:]
    )
    assert checkpoint.read("scalar").shape == ()


def test_bfloat16_and_other_bits_pass_unchanged(tmp_path: Path) -> None:
    """All 65,536 patterns of 16 bits, including NaNs, survive; as numbers they are float32's."""
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    small = np.arange(256, dtype=np.uint8)
    kinds = {"BF16": bits, "F16": bits.view(np.float16), "F8_E4M3": small, "F8_E5M2": small}
    write_safetensors(tmp_path / "a.safetensors", {k: planned(a, k) for k, a in kinds.items()}, {})
    checkpoint = open_checkpoint(tmp_path / "a.safetensors")
    for kind, array in kinds.items():
        read = checkpoint.read(kind, raw=True)
        assert read.tobytes() == array.tobytes()
        assert checkpoint.tensors[kind].kind == kind
    wide = checkpoint.read("BF16")
    assert wide.dtype == np.float32
    np.testing.assert_array_equal((wide.view(np.uint32) >> 16).astype(np.uint16), bits)
    finite = wide[np.isfinite(wide)]
    np.testing.assert_array_equal(round_to_type(finite, "bf16"), finite.astype(np.float64))
    with pytest.raises(UserError, match="F8_E4M3 is F8_E4M3, which NumPy cannot compute with"):
        checkpoint.read("F8_E4M3")


def test_a_file_that_was_cut_short_names_its_damaged_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"first": np.zeros(100), "last": np.zeros(100)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"cut short: [\d,]+ bytes of [\d,]+; damaged: last; take"):
        open_checkpoint(path)
    path.write_bytes(whole[:-801])
    with pytest.raises(UserError, match="damaged: first, last"):
        open_checkpoint(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(UserError, match="1 bytes more than its header speaks of"):
        open_checkpoint(path)
    for length in (0, 4, 8, 50):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="not a safetensors file, or one that was cut short"):
            open_checkpoint(path)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
WRONG: dict[str, tuple[Any, str]] = {
    "no table": ([1], "its header is no table"),
    "no JSON": (b"{]  ", "not JSON"),
    "a hole": ({"a": {**ENTRY, "data_offsets": [4, 12]}}, "a begins at byte 4"),
    "twice the same": (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        "a begins at byte 4; the tensor before it ends at 0",
    ),
    "over one another": (
        {"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}},
        "b begins at byte 4; the tensor before it ends at 8",
    ),
    "another length": ({"a": {**ENTRY, "shape": [3]}}, "a of 12 bytes by its shape stands at"),
    "unknown type": ({"a": {**ENTRY, "dtype": "F4"}}, "a has the type F4; BOOL, U8"),
    "negative": ({"a": {**ENTRY, "shape": [-2]}}, "a has no shape"),
    "no array": ({"a": {**ENTRY, "shape": [0, 2**62]}}, "which no array can have"),
    "texts": ({"__metadata__": {"a": 1}, "a": ENTRY}, "__metadata__ is no table of texts"),
    "no entry": ({"a": 3}, "a is no table"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_header_that_cannot_be_is_one_line(case: str, tmp_path: Path) -> None:
    header, message = WRONG[case]
    path = raw(tmp_path / "a.safetensors", header, bytes(8))
    with pytest.raises(UserError, match="not a sound safetensors file") as error:
        open_checkpoint(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", [*WRONG, "cut short", "bfloat16"])
def test_a_tensor_file_of_a_run_that_cannot_be_is_one_line(case: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "cut short": {"a": {**ENTRY, "shape": [4], "data_offsets": [0, 16]}},
        "bfloat16": {"a": {**ENTRY, "dtype": "BF16", "shape": [4]}},
    }
    header = more[case] if case in more else WRONG[case][0]
    path = raw(tmp_path / "a.safetensors", header, bytes(8))
    with pytest.raises(UserError, match=r"a\.safetensors: no readable tensors: ") as error:
        read_tensors(path)
    assert "\n" not in str(error.value)


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    written = write_safetensors(tmp_path / "a", {"x": planned(np.arange(9.0))}, {})
    assert written.sha256 == writing.sha256(tmp_path / "a")
    assert written.bytes == (tmp_path / "a").stat().st_size
    with pytest.raises(FileExistsError):
        write_safetensors(tmp_path / "a", {}, {})


def test_every_held_type_has_a_width() -> None:
    assert all(dtype.itemsize in (1, 2, 4, 8) for dtype in STORAGE_DTYPES.values())
    assert kind_of(np.dtype(">f4")) == "F32"
    assert kind_of(np.dtype("O")) is None
