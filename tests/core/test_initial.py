"""Initial weights from a safetensors file: accepted and refused files, and their record in the
plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml
from safetensors.numpy import load_file, save_file

from dualml.algorithms.model import initial_weights, model
from dualml.common.errors import UserError
from dualml.experiment.load import load
from dualml.experiment.store.plan import PLAN, restore_plan
from dualml.runner.checkpoint import open_checkpoint
from dualml.runner.checkpoint.initial import read_initial
from dualml.runner.checkpoint.weights import check_same_model, strip_wrapper

SHAPES = model("mlp").parameters()
RUN = (
    *("--backend", "numpy", "--quick", "--arm", "sgd", "--seed", "0", "--data", "digits"),
    *("--set", "model=mlp"),
)


def weights(**more: Any) -> dict[str, np.ndarray]:
    return {**initial_weights(model("mlp"), 7), **more}


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> str:
    save_file(tensors, path)
    return str(path)


def test_a_file_is_read_as_float32_under_canonical_names(tmp_path: Path) -> None:
    own = weights()
    for kind in (np.float16, np.float32, np.float64):
        text = write_tensors(
            tmp_path / f"{kind.__name__}.safetensors", {n: w.astype(kind) for n, w in own.items()}
        )
        found = read_initial(text, SHAPES).weights
        assert list(found) == list(SHAPES)
        for name, array in found.items():
            assert array.dtype == np.float32
            assert (array == own[name].astype(kind).astype(np.float32)).all()


def test_the_prefix_of_a_wrapped_model_is_taken_off(tmp_path: Path) -> None:
    own = weights()
    text = write_tensors(tmp_path / "ddp.safetensors", {f"module.{n}": w for n, w in own.items()})
    found = read_initial(text, SHAPES).weights
    assert all((found[name] == own[name]).all() for name in SHAPES)
    checkpoint = open_checkpoint(tmp_path / "ddp.safetensors")
    write_tensors(tmp_path / "plain.safetensors", own)
    check_same_model(checkpoint, open_checkpoint(tmp_path / "plain.safetensors"))
    check_same_model(open_checkpoint(tmp_path / "plain.safetensors"), checkpoint)
    assert list(strip_wrapper(checkpoint, ["module.x"]).tensors) == list(checkpoint.tensors)
    first = next(iter(own))
    mixed = {f"module.{n}" if n != first else n: w for n, w in own.items()}
    text = write_tensors(tmp_path / "mixed.safetensors", mixed)
    with pytest.raises(UserError, match=r"only here: module\."):
        read_initial(text, SHAPES)


def names() -> tuple[str, str]:
    first, *_, last = SHAPES
    return first, last


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w, a, b: w.pop(a), "only there: {a} "),
        (lambda w, a, b: w.update({a + "s": w.pop(a)}), "near names: {a} – {a}s"),
        (lambda w, a, b: w.update(extra=w[a]), "only here: extra "),
        (lambda w, a, b: w.update({b: w[b][:-1]}), "{b}: "),
        (lambda w, a, b: w.update({a: w[a].astype(np.int32)}), "{a} (I32); convert them"),
        (lambda w, a, b: w.update({b: w[b] * np.nan}), "{b} in "),
        (lambda w, a, b: w.update({b: np.full(w[b].shape, 1e300)}), "not finite in float32"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: Any, told: str) -> None:
    own, (a, b) = weights(), names()
    change(own, a, b)
    with pytest.raises(UserError) as refused:
        read_initial(write_tensors(tmp_path / "odd.safetensors", own), SHAPES)
    assert told.format(a=a, b=b) in str(refused.value)


def test_other_files_are_refused_with_the_way_to_make_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    (tmp_path / "a.pt").write_bytes(b"PK\3\4")
    for name, told in {
        "a.npz": "dualml checkpoint convert",
        "a.pt": "pickle",
        "nothing": "there is no file",
        ".": "there is no file",
    }.items():
        with pytest.raises(UserError, match=told):
            read_initial(str(tmp_path / name), SHAPES)


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_tensors(tmp_path / "w.safetensors", weights())
    monkeypatch.setattr("dualml.runner.checkpoint.initial.MAX_FILE_BYTES", 1000)
    with pytest.raises(UserError, match="bytes; at most 1,000 are read"):
        read_initial(text, SHAPES)


def test_a_path_is_relative_to_its_file(tmp_path: Path) -> None:
    found = load("lab1", overrides=[f"initial={tmp_path / 'w.safetensors'}"])
    assert found.initial == str(tmp_path / "w.safetensors")
    assert "initial" not in load("lab1").describe()
    with pytest.raises(UserError, match="leave one of them out"):
        load("methods", overrides=["model=bert", "initial=a.safetensors", "pretrained=b"])


@pytest.mark.whole
def test_a_run_begins_with_the_weights_of_the_file(tmp_path: Path) -> None:
    own = weights()
    text = write_tensors(tmp_path / "w.safetensors", own)
    done = dualml(
        "run", "lab1", *RUN, "--set", f"initial={text}", "--out", str(tmp_path / "out"), "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "w.safetensors" in told["data"]["notice"]["en"]
    planned = load_file(tmp_path / "out/plan/weights.safetensors")
    assert all((planned[f"seed0/{name}"] == own[name]).all() for name in SHAPES)
    record = PLAN.read(tmp_path / "out/plan").initial
    assert record is not None
    assert (record.path, len(record.sha256)) == (text, 64)
    assert restore_plan(tmp_path / "out/plan").initial_file == record.describe()
    own[names()[0]][:1] += 1
    write_tensors(tmp_path / "w.safetensors", own)
    again = dualml(
        "run", "lab1", *RUN, "--set", f"initial={text}", "--out", str(tmp_path / "two"), "--json"
    )
    assert json.loads(again.stdout)["plan_hash"] != told["plan_hash"]
    lost = dualml("run", "lab1", *RUN, "--set", "initial=/no/such", "--out", str(tmp_path / "no"))
    assert (lost.returncode, "there is no file /no/such" in lost.stderr) == (2, True)
