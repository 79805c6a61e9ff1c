"""Folders of Hugging Face and of torch.distributed.checkpoint, and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import arrays, assert_equal, on_mesh, read_refusal, save_on
from safetensors.numpy import save_file

from dualml.runner.checkpoint import open_checkpoint
from dualml.runner.checkpoint.convert import convert


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    save_on(4, lambda rank: on_mesh(rank, arrays()), tmp_path / "ckpt")
    return tmp_path / "ckpt"


# --- Hugging Face's -----------------------------------------------------------------------------


@pytest.fixture
def hf(tmp_path: Path) -> Path:
    """Write three files and their index, as transformers does."""
    folder, places = tmp_path / "hf", {}
    folder.mkdir()
    for number in (1, 2, 3):
        file = f"model-{number:05}-of-00003.safetensors"
        tensors = {f"layer.{number}.weight": np.full((2, 3), number, np.float32)}
        save_file(tensors, folder / file, {"format": "pt"})
        places |= dict.fromkeys(tensors, file)
    index = {"metadata": {"total_size": 72}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_a_folder_of_hugging_face(hf: Path) -> None:
    expected = {f"layer.{n}.weight": np.full((2, 3), n, np.float32) for n in (1, 2, 3)}
    assert_equal(open_checkpoint(hf), expected)
    assert open_checkpoint(hf).format == "safetensors"
    (hf / "model.safetensors.index.json").unlink()
    assert_equal(open_checkpoint(hf), expected)


def test_a_missing_file_of_it(hf: Path) -> None:
    (hf / "model-00002-of-00003.safetensors").unlink()
    said = read_refusal(hf)
    assert "model-00002-of-00003.safetensors is missing" in said
    assert "layer.2.weight" in said
    (hf / "model.safetensors.index.json").unlink()
    assert "model-00002-of-00003.safetensors is missing" in read_refusal(hf)
    said = read_refusal(hf / "model-00001-of-00003.safetensors")
    assert f"is one of the files of a checkpoint: name the folder {hf}" in said


def test_an_index_that_does_not_fit(hf: Path) -> None:
    path = hf / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    places = index["weight_map"]
    first = places["layer.1.weight"]

    def changed(**more: Any) -> str:
        path.write_text(json.dumps({"weight_map": {**places, **more}}))
        return read_refusal(hf)

    assert "has no layer.9.weight, which" in changed(**{"layer.9.weight": first})
    assert "has no weight_map of tensors to files" in changed(x="../x.safetensors")
    path.write_text(json.dumps({"weight_map": {"layer.1.weight": first}}))
    assert_equal(open_checkpoint(hf), {"layer.1.weight": np.full((2, 3), 1, np.float32)})
    path.write_text("[]")
    assert "has no weight_map" in read_refusal(hf)


def test_a_name_in_two_files_is_not_guessed_at(hf: Path) -> None:
    """Unconsolidated shards of a tensor are refused if nothing says which part each one has."""
    for number in (1, 2, 3):
        part = {"x": np.full((2, 3), number, np.float32)}
        save_file(part, hf / f"model-{number:05}-of-00003.safetensors", {"format": "pt"})
    (hf / "model.safetensors.index.json").unlink()
    assert (
        "x stands in model-00001-of-00003.safetensors and in model-00002-of-00003.safetensors, and "
        "nothing in them says which part each has"
    ) in read_refusal(hf)


# --- torch.distributed.checkpoint ---------------------------------------------------------------


def shards(folder: Path, places: dict[int, tuple[int, int]]) -> Path:
    """Return rank → first and last row of a (6, 2) tensor, as torch's safetensors writer
    stores it."""
    folder.mkdir()
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    for rank, (first, last) in places.items():
        info = json.dumps({"x": {"saved_offsets": [first, 0]}})
        save_file(
            {"x": whole[first:last].copy()},
            folder / f"shard-{rank:05}-model-00001-of-00001.safetensors",
            {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0", "format": "pt"},
        )
    return folder


def test_shards_of_torch(tmp_path: Path) -> None:
    folder = shards(tmp_path / "p", {1: (0, 2), 2: (2, 4), 3: (4, 6)})
    found = open_checkpoint(folder)
    assert found.format == "dcp"
    assert_equal(found, {"x": np.arange(12, dtype=np.float32).reshape(6, 2)})
    one = folder / "shard-00001-model-00001-of-00001.safetensors"
    assert "is one of the files of a checkpoint" in read_refusal(one)
    one.rename(tmp_path / "one.safetensors")
    assert "x (6, 2) is not whole: [0:2, 0:2] is in no file, 4 of 12" in read_refusal(folder)


def test_shards_that_overlap(tmp_path: Path) -> None:
    folder = shards(tmp_path / "p", {1: (0, 3), 2: (2, 6)})
    said = read_refusal(folder)
    assert "x is stored twice in part: [0:3, 0:2] in shard-00001" in said
    assert "and [2:6, 0:2] in shard-00002" in said


def test_a_missing_last_shard_is_noticed_where_dualml_wrote_it(ckpt: Path, tmp_path: Path) -> None:
    """A missing last shard is noticed if dualml wrote it; torch's own files do not record the full
    size."""
    convert(open_checkpoint(ckpt), tmp_path / "p", "dcp", 2)
    (tmp_path / "p/shard-00002-model-00001-of-00001.safetensors").unlink()
    assert (
        "shard-00001-model-00001-of-00001.safetensors is one of 2 files; 1 is here; not whole "
        "without the others: "
    ) in (said := read_refusal(tmp_path / "p"))
    assert "weights/up.weight" in said


def test_one_file_of_several_is_noticed_under_any_name(ckpt: Path, tmp_path: Path) -> None:
    convert(open_checkpoint(ckpt), tmp_path / "s", "safetensors", 2)
    mine = (tmp_path / "s/model-00001-of-00002.safetensors").rename(tmp_path / "mine.safetensors")
    assert "mine.safetensors is one of 2 files; 1 is here" in read_refusal(mine)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("{", "DCP_SHARDING_INFO in its metadata: not JSON"),
        ("[]", "it is no table"),
        ("{}", "its metadata has no saved_offsets of x"),
        ('{"x": {"saved_offsets": [0]}}', "x of shape (2, 2) cannot begin at (0,)"),
        ('{"x": {"saved_offsets": [-1, 0]}}', "its metadata has no saved_offsets of x"),
        ('{"x": {"saved_offsets": [1, 0]}}', "x (3, 2) is not whole: [0:1, 0:2]"),
    ],
)
def test_sharding_info_that_cannot_be(info: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": np.zeros((2, 2))}, path, {"DCP_SHARDING_INFO": info})
    assert message in read_refusal(path)


def test_files_of_different_steps(tmp_path: Path) -> None:
    for step in (1, 2):
        save_on(4, lambda rank: on_mesh(rank, arrays()), tmp_path / f"c{step}", step=step)
        convert(open_checkpoint(tmp_path / f"c{step}"), tmp_path / f"s{step}", "safetensors", 2)
    name = "model-00002-of-00002.safetensors"
    (tmp_path / "s1" / name).write_bytes((tmp_path / "s2" / name).read_bytes())
    assert "files of different steps: model-00001-of-00002.safetensors of 1, " in read_refusal(
        tmp_path / "s1"
    )
