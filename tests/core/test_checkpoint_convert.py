"""Conversion between all checkpoint formats: bit for bit, in chunks, and never over an existing
target."""

from __future__ import annotations

import json
import os
import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import arrays, assert_equal, files_of, on_mesh, save_on
from safetensors.numpy import load_file

from dualml.common.errors import UserError
from dualml.runner.checkpoint import Slice, open_checkpoint
from dualml.runner.checkpoint.convert import READ_CHUNK_BYTES, TARGETS, convert, temporary_prefix
from dualml.runner.checkpoint.weights import select_weights

NAMES = {"dualml": "d", "safetensors": "s.safetensors", "dcp": "p", "npz": "n.npz"}


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    save_on(4, lambda rank: on_mesh(rank, arrays()), tmp_path / "ckpt", about={"lr": 0.1})
    return tmp_path / "ckpt"


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
def test_there_and_back(first: str, second: str, ckpt: Path, tmp_path: Path) -> None:
    a, b = tmp_path / NAMES[first], tmp_path / "again" / NAMES[second]
    assert convert(open_checkpoint(ckpt), a, first) == first
    assert open_checkpoint(a).format == first
    convert(open_checkpoint(a), b, second)
    assert_equal(open_checkpoint(b), arrays())
    assert open_checkpoint(b).step == (None if "npz" in (first, second) else 10)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("x", "dualml"),
        ("x.safetensors", "safetensors"),
        ("x.npz", "npz"),
    ],
)
def test_the_name_says_the_format(name: str, to: str, ckpt: Path, tmp_path: Path) -> None:
    assert convert(open_checkpoint(ckpt), tmp_path / name) == to
    assert open_checkpoint(tmp_path / name).format == to


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("to", ["dualml", "dcp", "safetensors"])
def test_any_number_of_files(to: str, shards: int, ckpt: Path, tmp_path: Path) -> None:
    convert(open_checkpoint(ckpt), tmp_path / "x", to, shards)
    found = open_checkpoint(tmp_path / "x")
    assert_equal(found, arrays())
    up = found.tensors["weights/up.weight"]
    assert len(up.shards) == (1 if to == "safetensors" else min(shards, 8))
    tensors = [name for name in files_of(tmp_path / "x") if name.endswith(".safetensors")]
    assert len(tensors) <= shards
    if to == "safetensors" and shards > 1:
        index = json.loads((tmp_path / "x/model.safetensors.index.json").read_text())
        assert index["metadata"]["total_size"] == found.nbytes
        assert set(index["weight_map"]) == set(arrays())
        assert set(index["weight_map"].values()) == set(tensors)
        first = load_file(tmp_path / "x" / tensors[0])
        for name, array in first.items():
            np.testing.assert_array_equal(array, arrays()[name])


def test_weights_alone_under_their_own_names(ckpt: Path, tmp_path: Path) -> None:
    convert(select_weights(open_checkpoint(ckpt)), tmp_path / "w.safetensors")
    plain = load_file(tmp_path / "w.safetensors")
    assert sorted(plain) == ["down.weight", "norm.bias", "up.weight"]
    with pytest.raises(UserError, match=r"has no tensors called weights/NAME, but down.weight, "):
        select_weights(open_checkpoint(tmp_path / "w.safetensors"))


def test_bits_that_numpy_has_no_type_for(tmp_path: Path) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    half = np.arange(2**16, dtype=np.uint16).view(np.float16)
    save_on(1, lambda rank: [Slice.full("b", bits, "BF16"), Slice.full("h", half)], tmp_path / "a")
    for number, to in enumerate(("safetensors", "dcp", "dualml")):
        convert(open_checkpoint(tmp_path / "a"), tmp_path / str(number), to, 3)
        found = open_checkpoint(tmp_path / str(number))
        assert found.tensors["b"].kind == "BF16"
        assert found.read("b", raw=True).tobytes() == bits.tobytes()
        assert found.read("h").tobytes() == half.tobytes()
    with pytest.raises(UserError, match=r"NumPy has no BF16, of which b is .* convert to safeten"):
        convert(open_checkpoint(tmp_path / "a"), tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("to", TARGETS)
def test_a_large_tensor_is_never_in_memory_whole(to: str, tmp_path: Path) -> None:
    """A matrix split by columns over 8 ranks is assembled row by row from all of their files."""
    big = np.arange(8 * READ_CHUNK_BYTES // 8, dtype=np.float64).reshape(1024, -1)
    columns = np.split(big, 8, axis=1)
    width = columns[0].shape[1]
    save_on(8, lambda r: [Slice("x", big.shape, (0, r * width), columns[r])], tmp_path / "a")
    tracemalloc.start()
    try:
        convert(open_checkpoint(tmp_path / "a"), tmp_path / "b", to, 1 if to == "npz" else 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert big.nbytes == 8 * READ_CHUNK_BYTES
    assert peak < 3 * READ_CHUNK_BYTES
    path = (tmp_path / "b").rename(tmp_path / "b.npz") if to == "npz" else tmp_path / "b"
    assert open_checkpoint(path).read("x").tobytes() == big.tobytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"to": "pickle"}, "--to 'pickle'; known: dcp, dualml, npz, safetensors"),
        ({"shards": 0}, "--shards is from 1 to 100,000; received 0"),
        ({"to": "npz", "shards": 2}, "is one file and --shards is 2: name a folder"),
    ],
)
def test_what_cannot_be_asked(
    words: dict[str, Any], message: str, ckpt: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        convert(open_checkpoint(ckpt), tmp_path / "x", **words)


def test_what_is_there_already_stays(ckpt: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "there/x", "ckpt", "link"):
        with pytest.raises(UserError, match="is there already: name another one, or remove it"):
            convert(open_checkpoint(ckpt), tmp_path / name)
    assert (tmp_path / "there" / "x").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    convert(open_checkpoint(ckpt), tmp_path / "empty")
    assert_equal(open_checkpoint(tmp_path / "empty"), arrays())


def test_a_changed_file_is_not_passed_on(ckpt: Path, tmp_path: Path) -> None:
    path = ckpt / "step00000010/rank1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"rank1.safetensors: its SHA-256 is .*it was changed"):
        convert(open_checkpoint(ckpt), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_names_that_no_reader_takes_are_refused_before_anything_is_written(
    ckpt: Path, tmp_path: Path
) -> None:
    for name, to in (
        ("model-00001-of-00002.safetensors", ""),
        ("shard-00001-model-00001-of-00001.safetensors", ""),
        ("x.pt", "npz"),
    ):
        with pytest.raises(UserError, match="what a file of another kind is called, or one of"):
            convert(open_checkpoint(ckpt), tmp_path / name, to)
        assert not (tmp_path / name).exists()
    convert(open_checkpoint(ckpt), tmp_path / "checkpoint.safetensors")
    assert_equal(open_checkpoint(tmp_path / "checkpoint.safetensors"), arrays())


def test_nothing_is_written_into_the_source(
    ckpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"lies in .*ckpt, which is read: name another place"):
        convert(open_checkpoint(ckpt), ckpt / "all.safetensors")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(UserError, match="link is there already"):
        convert(open_checkpoint(ckpt), tmp_path / "link")
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UserError, match=r"^\. is the folder you are in: name a new one"):
        convert(open_checkpoint(ckpt), ".")


def test_only_what_ended_conversions_of_this_host_left_is_removed(
    ckpt: Path, tmp_path: Path
) -> None:
    ours = temporary_prefix(tmp_path / "x")
    dead, own = f"{ours}{2**22 + 1}", f"{ours}{os.getpid()}"  # beyond the largest of Linux
    kept = [".x.20240101", ".x.dualml-elsewhere-999999999", f"{ours}1", f"{ours}1a"]
    for name in (dead, own, *kept):
        (tmp_path / name).mkdir()
    convert(open_checkpoint(ckpt), tmp_path / "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["ckpt", "x", *kept])


def test_more_files_than_a_process_may_have_open(tmp_path: Path) -> None:
    rows = np.arange(800.0).reshape(400, 2)
    np.savez(tmp_path / "rows.npz", w=rows)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        convert(open_checkpoint(tmp_path / "rows.npz"), tmp_path / "many", shards=400)
        found = open_checkpoint(tmp_path / "many")
        np.testing.assert_array_equal(found.read("w"), rows)
        convert(found, tmp_path / "one", shards=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(found.files) == 400
    np.testing.assert_array_equal(open_checkpoint(tmp_path / "one").read("w"), rows)


def test_an_archive_has_no_names_with_a_zero(tmp_path: Path) -> None:
    save_on(1, lambda rank: [Slice.full("a\0b", np.zeros(2))], tmp_path / "a")
    with pytest.raises(UserError, match=r"no array of an .npz can be called a\\x00b"):
        convert(open_checkpoint(tmp_path / "a"), tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()
