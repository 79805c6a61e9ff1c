"""Weight files of all formats: what is read, and what is refused with a remedy."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from weight_files import draw_arrays, write_ckpt, write_shards

from dualml.common.errors import UserError
from dualml.parity.models.weights import mindspore_file
from dualml.parity.models.weights.opening import open_weights

SHAPES = {"fc.weight": (3, 4), "fc.bias": (3,), "scale": ()}


def test_all_formats_give_the_same_tensors(tmp_path: Path) -> None:
    arrays = draw_arrays(SHAPES)
    save_file(arrays, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **arrays)
    first, second = dict(list(arrays.items())[:2]), dict(list(arrays.items())[2:])
    places = [
        tmp_path / "w.safetensors",
        tmp_path / "w.npz",
        write_ckpt(tmp_path / "w.ckpt", arrays),
        write_shards(tmp_path / "sharded", [first, second]),
        tmp_path / "sharded" / "model.safetensors.index.json",
        write_shards(tmp_path / "bare", [first, second], index=False),
    ]
    for place in places:
        files = open_weights(place)
        assert files.tensors.keys() == arrays.keys(), place
        for name, array in arrays.items():
            assert files.tensors[name].shape == array.shape
            assert files.tensors[name].read().tobytes() == array.tobytes()


def test_bfloat16_becomes_float32_exactly(tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0xC040], [0x0001, 0x7F80]], np.uint16)
    header = {"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bits.tobytes())
    (tensor,) = open_weights(path).tensors.values()
    expected = np.array([[1.0, -3.0], [2.0**-133, np.inf]], np.float32)
    assert tensor.read().tobytes() == expected.tobytes()


def test_a_tensor_of_several_values_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindspore_file, "PART_BYTES", 20)
    arrays = draw_arrays({"w": (3, 5), "b": (2,)})
    path = write_ckpt(tmp_path / "w.ckpt", arrays)
    assert path.read_bytes().count(b"Float32") == 4
    files = open_weights(path)
    for name, array in arrays.items():
        assert files.tensors[name].read().tobytes() == array.tobytes()


def test_a_checksum_behind_a_checkpoint_is_no_value(tmp_path: Path) -> None:
    path = write_ckpt(tmp_path / "w.ckpt", draw_arrays({"w": (2,)}))
    path.write_bytes(path.read_bytes() + b"crc_num" + bytes(10))
    assert list(open_weights(path).tensors) == ["w"]


def test_names_change_their_beginning(tmp_path: Path) -> None:
    files = open_weights(write_ckpt(tmp_path / "w.ckpt", draw_arrays({"m.a": (1,), "m.b": (1,)})))
    assert list(files.rename("m.").tensors) == ["a", "b"]
    assert list(files.rename("m.=net.").tensors) == ["net.a", "net.b"]
    assert list(files.rename("=x.").tensors) == ["x.m.a", "x.m.b"]
    with pytest.raises(UserError, match=r"no name in .* begins with 'q\.'; the first is m\.a"):
        files.rename("q.")
    with pytest.raises(UserError, match="two tensors would be ma"):
        open_weights(
            write_ckpt(tmp_path / "v.ckpt", draw_arrays({"m.a": (1,), "ma": (1,)}))
        ).rename("m.=m")


def test_pickles_are_refused_with_the_command_that_converts_them(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")
    (tmp_path / "w.ckpt").write_bytes(pickle.dumps({"a": 1}))
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "training_args.bin").write_bytes(b"\x80\x02.")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    for place in (tmp_path / "w.pt", tmp_path / "w.ckpt", folder):
        with pytest.raises(UserError, match=r"is a pickle.*weights_only=True") as error:
            open_weights(place)
        assert "save_file" in str(error.value)
    assert f"'{folder / 'pytorch_model.bin'}' writes" in str(error.value)


def test_missing_shards_are_named_with_their_tensors(tmp_path: Path) -> None:
    arrays = draw_arrays({f"l{i}": (2,) for i in range(3)})
    shards = [{name: array} for name, array in arrays.items()]
    folder = write_shards(tmp_path / "a", shards)
    (folder / "model-00002-of-00003.safetensors").unlink()
    said = r"model-00002-of-00003.safetensors is missing, with 1 of 3 tensors: l1"
    with pytest.raises(UserError, match=said):
        open_weights(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00003\.safetensors missing of 3"):
        open_weights(folder)
    with pytest.raises(UserError, match="is one of 3 files; name the folder"):
        open_weights(folder / "model-00001-of-00003.safetensors")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    arrays = draw_arrays({"w": (30, 4), "b": (7,)})
    save_file(arrays, tmp_path / "w.safetensors")
    write_ckpt(tmp_path / "w.ckpt", arrays)
    for name in ("w.safetensors", "w.ckpt"):
        whole = (tmp_path / name).read_bytes()
        for count in (0, 1, 9, 60, len(whole) - 1):
            (tmp_path / name).write_bytes(whole[:count])
            with pytest.raises(UserError, match="not a readable"):
                open_weights(tmp_path / name)
    for content in (b"\x0a\x03abc", b"\x12\x00", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"):
        (tmp_path / "w.ckpt").write_bytes(content)
        with pytest.raises(UserError, match="not a readable MindSpore checkpoint"):
            open_weights(tmp_path / "w.ckpt")
    (tmp_path / "w.h5").write_bytes(b"abcd")
    with pytest.raises(UserError, match=r"unknown format; it reads \.safetensors"):
        open_weights(tmp_path / "w.h5")
    with pytest.raises(UserError, match="there is no file or folder"):
        open_weights(tmp_path / "none")


def test_folders_without_one_checkpoint_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no weights"):
        open_weights(tmp_path)
    save_file(draw_arrays({"a": (1,)}), tmp_path / "x.safetensors")
    assert list(open_weights(tmp_path).tensors) == ["a"]
    save_file(draw_arrays({"b": (1,)}), tmp_path / "y.safetensors")
    with pytest.raises(UserError, match=r"several weight files \(x\.safetensors, y\.safetensors\)"):
        open_weights(tmp_path)
