"""Safetensors files that are written and read one tensor at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from dualml.common import tensor_files
from dualml.common.errors import UserError
from dualml.common.tensor_files import LazyArrays, TensorFileWriter, array_shape, index_tensors

ARRAYS: dict[str, Any] = {
    "mask": np.array([True, False, True]),
    "x": np.arange(12, dtype=np.float32).reshape(3, 4).T,  # in no C order
    "count": np.array(7),
    "none": np.zeros((0, 3), np.float16),
    "wide": np.arange(3.0),
}


def write(path: Path, reserve: int = 4096) -> None:
    writer = TensorFileWriter(path, reserve)
    for name, array in ARRAYS.items():
        writer.append(name, array)
    writer.finish()


@pytest.mark.parametrize("reserve", [4096, 8], ids=["room", "too little room"])
def test_the_library_reads_what_is_written_here(
    tmp_path: Path, reserve: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "MOVED_BYTES", 16)
    write(tmp_path / "x.safetensors", reserve)
    loaded = load_file(tmp_path / "x.safetensors")
    ours = index_tensors(tmp_path / "x.safetensors", "unreadable")
    assert list(ours) == list(ARRAYS)
    for name, array in ARRAYS.items():
        for read in (loaded[name], ours[name].read()):
            assert read.dtype == array.dtype
            assert np.array_equal(read, array)
            assert read.shape == array.shape


def test_a_tensor_is_read_before_and_after_the_file_is_finished(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path / "x.safetensors", 8)
    read = writer.append("x", ARRAYS["x"])
    assert np.array_equal(read(), ARRAYS["x"])
    writer.append("x", ARRAYS["x"] + 1)
    assert not (tmp_path / "x.safetensors").exists()
    writer.finish()
    assert np.array_equal(read(), ARRAYS["x"])  # the first of its name is still there
    found = index_tensors(tmp_path / "x.safetensors", "unreadable")
    assert np.array_equal(found["x"].read(), ARRAYS["x"] + 1)


def test_numbers_that_the_format_lacks_are_refused(tmp_path: Path) -> None:
    writer = TensorFileWriter(tmp_path / "x.safetensors", 64)
    with pytest.raises(ValueError, match=r"z has the type complex128"):
        writer.append("z", np.zeros(2, complex))
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path)
    tensor = index_tensors(path, "unreadable")["wide"]
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match="unreadable"):
        index_tensors(path, "unreadable")
    with pytest.raises(ValueError, match="4 bytes are missing"):
        tensor.read()


def test_arrays_are_read_only_when_they_are_looked_up() -> None:
    looks = []
    arrays = LazyArrays()
    arrays.add("x", (2,), lambda: looks.append(1) or np.ones(2))  # type: ignore[func-returns-value]
    assert "x" in arrays
    assert "y" not in arrays
    assert len(arrays) == 1
    assert array_shape(arrays, "x") == arrays.shape("x") == (2,)
    assert not looks
    assert arrays["x"].sum() == 2
    assert looks


def test_a_large_tensor_shares_the_pages_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "MAPPED_BYTES", 1)
    path, x = tmp_path / "x.safetensors", np.arange(5000.0)
    writer = TensorFileWriter(path, 4096)
    for name, array in {"a": x, "byte": np.ones(1, np.uint8), "b": x}.items():
        read = writer.append(name, array)
    early = read()
    writer.finish()
    tensors = {name: tensor.read() for name, tensor in index_tensors(path, "unreadable").items()}
    assert all(np.array_equal(array, x) for array in (early, tensors["a"], tensors["b"]))
    assert not tensors["a"].flags.owndata
    assert tensors["b"].flags.aligned  # read, because behind a byte it is not in the file
    tensors["a"][:] = 0
    assert np.array_equal(index_tensors(path, "unreadable")["a"].read(), x)


def test_a_file_that_ends_early_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "MAPPED_BYTES", 1)
    path = tmp_path / "x.safetensors"
    write(path)
    wide = index_tensors(path, "unreadable")["wide"]
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="8 bytes are missing"):
        wide.read()
