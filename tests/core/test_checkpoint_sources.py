"""Errors in a checkpoint are named; archives and trials are read, pickles are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import arrays, assert_equal, on_mesh, read_refusal, save_on
from safetensors.numpy import save_file

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.experiment.store.checkpoint import Progress, save_checkpoint
from dualml.experiment.store.trial import RESULT
from dualml.runner.checkpoint import load, open_checkpoint
from dualml.runner.checkpoint.convert import convert
from dualml.runner.checkpoint.display import title_lines


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    save_on(4, lambda rank: on_mesh(rank, arrays()), tmp_path / "ckpt")
    return tmp_path / "ckpt"


# --- dualml's own -------------------------------------------------------------------------------


def test_a_missing_file_names_the_tensors_it_takes_with_it(ckpt: Path) -> None:
    (ckpt / "step00000010/rank1.safetensors").unlink()
    said = read_refusal(ckpt)
    assert "rank1.safetensors is missing; tensors that are not whole without: " in said
    assert "state/exp_avg/up.weight" in said
    assert "go back to an earlier checkpoint" in said


def test_a_file_of_another_checkpoint_is_noticed(ckpt: Path, tmp_path: Path) -> None:
    save_on(4, lambda rank: on_mesh(rank, {"weights/up.weight": np.zeros((8, 6))}), tmp_path / "b")
    place = "step00000010/rank0.safetensors"
    (ckpt / place).write_bytes((tmp_path / "b" / place).read_bytes())
    assert "rank0.safetensors has" in read_refusal(ckpt)
    assert "the manifest says" in read_refusal(ckpt)


def test_a_file_that_was_cut_short(ckpt: Path) -> None:
    path = ckpt / "step00000010/rank0.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "cut short" in read_refusal(ckpt)
    assert "damaged: " in read_refusal(ckpt)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format=2), "written by a newer dualml (format 2, this one reads 1)"),
        (lambda m: m.pop("tensors"), "tensors is missing"),
        (
            lambda m: m["tensors"].update(more={"type": "F32", "shape": [2]}),
            "more (2,) is not whole: [0:2] is in no file, 2 of 2 elements",
        ),
        (lambda m: m["tensors"].update(more={"type": "X", "shape": [0]}), "more has the type X"),
        (lambda m: m["tensors"]["half"].update(type="F32"), "half of type F16, which the manifest"),
        (
            lambda m: m["tensors"]["half"].update(shape=[4, 5]),
            "half (4, 5) is not whole: [0:4, 4:5]",
        ),
        (lambda m: m["tensors"]["half"].update(shape=[4, 3]), "half[0:4, 0:4] lies outside"),
        (lambda m: m["files"].update({"../x": {"bytes": 1, "sha256": "0" * 64}}), "files.../x"),
        (
            lambda m: m["files"]["step00000010/rank0.safetensors"].update(bytes=1),
            "the manifest says 1",
        ),
    ],
)
def test_a_manifest_that_does_not_fit(change: Any, message: str, ckpt: Path) -> None:
    path = ckpt / "checkpoint.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    assert message in read_refusal(ckpt)


def test_a_name_or_a_slice_that_is_not_there(ckpt: Path) -> None:
    with pytest.raises(UserError, match=r"no tensor 'weights/up.wieght'; did you mean 'weights/up"):
        load(ckpt, "weights/up.wieght")
    for where in ([slice(0, 9)], [slice(-9, 3)], [slice(0, 4, 2)], [slice(1)] * 3):
        with pytest.raises(UserError, match=r"weights/up.weight has the shape \(8, 6\)"):
            load(ckpt, "weights/up.weight", where)
    assert load(ckpt, "weights/up.weight", [slice(3, 3)]).shape == (0, 6)


def test_another_model_is_named_with_both_sides(ckpt: Path) -> None:
    found = open_checkpoint(ckpt)
    expected = {name: tensor.shape for name, tensor in found.tensors.items()}
    found.check_model(expected, "itself")
    expected["weights/up.weights"] = expected.pop("weights/up.weight")
    expected["half"] = (4, 5)
    with pytest.raises(UserError) as error:
        found.check_model(expected, "the plan")
    assert str(error.value) == (
        f"{ckpt} holds another model than the plan (7 tensors here, 7 there): "
        "half: (4, 5) there, (4, 4) here; only there: weights/up.weights (8, 6); "
        "only here: weights/up.weight (8, 6); near names: weights/up.weights – weights/up.weight"
    )


# --- pickles, archives, trials ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "__0_0.distcp", "x.ckpt"])
def test_pickles_are_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04.")
    assert "is a pickle, which can run code when it is read" in read_refusal(tmp_path / name)
    if name != "x.ckpt":
        assert f"{name} is a pickle, which can run code when it is read" in read_refusal(tmp_path)


def test_what_mindspore_writes_is_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"\n\x1a\n\x06weight")
    assert "MindSpore's own checkpoint format, protobuf" in read_refusal(tmp_path / "x.ckpt")


@pytest.mark.parametrize("places", [{}, {"w": ".."}, {"w": ""}, {"w": "x.bin"}])
def test_an_index_that_names_no_file(places: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert "it has no weight_map of tensors to files beside it, .safetensors" in read_refusal(
        tmp_path
    )


def test_an_offset_that_no_array_has(tmp_path: Path) -> None:
    about = {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": [2**62, 0]}})}
    save_file({"w": np.zeros((1, 0), np.float32)}, tmp_path / "x.safetensors", about)
    assert "which no array can have" in read_refusal(tmp_path / "x.safetensors")


def test_a_missing_file_of_a_rank_is_named(ckpt: Path, tmp_path: Path) -> None:
    convert(open_checkpoint(ckpt), tmp_path / "dcp", "dcp", 3)
    (tmp_path / "dcp/shard-00002-model-00001-of-00001.safetensors").unlink()
    said = read_refusal(tmp_path / "dcp")
    assert said.endswith("; missing: shard-00002-model-00001-of-00001.safetensors")


def test_a_pickled_folder_of_torch_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04.")
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    assert "HuggingFaceStorageWriter(path=DIR, save_distributed=True)" in read_refusal(tmp_path)


def test_an_archive_of_numpy(tmp_path: Path) -> None:
    given = {name: a for name, a in arrays().items() if "/" not in name}
    given |= {"fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    for name, write in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        write(tmp_path / name, **given, big=np.arange(4, dtype=">f4"))
        found = open_checkpoint(tmp_path / name)
        assert_equal(found, {**given, "big": np.arange(4, dtype="<f4")})
        np.testing.assert_array_equal(found.read("fortran", [slice(1, 2)]), given["fortran"][1:2])


def test_archives_that_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([{}], object))
    assert "x of type object holds Python objects, which are a pickle and is not" in read_refusal(
        path
    )
    np.savez(path, x=np.array(["a"]))
    assert "x of type <U1 is no tensor and is not read" in read_refusal(path)
    np.savez(path, x=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:-100])
    assert "not a readable archive" in read_refusal(path)


def test_the_checkpoint_of_a_trial(tmp_path: Path) -> None:
    weights = {"fc.weight": np.ones((2, 3), np.float32)}
    state = {"exp_avg": {"fc.weight": np.full((2, 3), 0.5, np.float32)}}
    trace = {"forward/00000001/fc": np.zeros(3)}
    save_checkpoint(tmp_path, 0, Progress(step=12), weights, state, trace)
    save_checkpoint(tmp_path, 1, Progress(step=12), weights, state, {})
    for path in (tmp_path, tmp_path / "checkpoint.safetensors"):
        found = open_checkpoint(path)
        assert (found.format, found.step) == ("trial", 12)
        assert_equal(
            found,
            {
                "weights/fc.weight": weights["fc.weight"],
                "state/exp_avg/fc.weight": state["exp_avg"]["fc.weight"],
            },
        )
    save_file(weights, tmp_path / "checkpoint.safetensors")
    assert "not a readable checkpoint" in read_refusal(tmp_path)
    (tmp_path / "rank1.checkpoint.safetensors").unlink()
    for path in (tmp_path, tmp_path / "checkpoint.safetensors"):  # called so, and no trial's
        assert open_checkpoint(path).format == "safetensors"
        assert_equal(open_checkpoint(path), weights)


def test_a_trial_that_left_no_weights(tmp_path: Path) -> None:
    (tmp_path / RESULT.name).write_text("{}")
    assert "the trial has ended and left no weights" in read_refusal(tmp_path)


def test_one_element_is_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(1))
    assert "in 1 file, 1 element, 8 B" in next(
        title_lines(open_checkpoint(tmp_path / "a.npz"), Messages("en"))
    )


def test_nothing_there(tmp_path: Path) -> None:
    assert "has no checkpoint: neither checkpoint.json nor model.safet" in read_refusal(tmp_path)
    assert "there is no checkpoint" in read_refusal(tmp_path / "x")


def test_of_a_run_the_trials_are_named(tmp_path: Path) -> None:
    for arm in "abcd":
        folder = tmp_path / "trials" / arm
        folder.mkdir(parents=True)
        (folder / "weights.safetensors").write_bytes(b"")
    said = read_refusal(tmp_path)
    assert said.endswith("in it are trials/a, trials/b, trials/c and 1 more: name one of them")
