"""`dualml checkpoint` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoint_cases import arrays, on_mesh, save_on
from command import DOCS, dualml, strict
from command import lab as lab
from command import run as run_lab


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    save_on(4, lambda rank: on_mesh(rank, arrays()), tmp_path / "ckpt", layout={"tensor": 2})
    return tmp_path / "ckpt"


def test_show(ckpt: Path) -> None:
    done = dualml("checkpoint", "show", ckpt, "--verify")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ckpt} (dualml): 7 tensors in 4 files, 167 elements, 832 B"
    assert lines[1:4] == [
        "step 10",
        "layout: tensor = 2, world_size = 4",
        "SHA-256 of every file: as written",
    ]
    rows = [line.split() for line in lines[4:]]
    assert rows[0] == ["tensor", "shape", "type", "slices", "bytes"]
    assert ["weights/up.weight", "8", "×", "6", "F32", "2", "192"] in rows
    assert ["count", "scalar", "I64", "1", "8"] in rows


def test_show_as_json_and_in_chinese(ckpt: Path) -> None:
    told = strict(dualml("checkpoint", "show", ckpt, "--json").stdout)
    assert (told["step"], told["format"], told["bytes"]) == (10, "dualml", 832)
    (up,) = [t for t in told["tensors"] if t["name"] == "weights/up.weight"]
    assert [shard["offset"] for shard in up["shards"]] == [[0, 0], [4, 0]]
    done = dualml("checkpoint", "show", ckpt, "--lang", "zh")
    assert "4 个文件，7 个张量，共 167 个元素" in done.stdout
    assert "布局：tensor = 2, world_size = 4" in done.stdout
    assert "切片数" in done.stdout


def test_convert_and_compare(ckpt: Path, tmp_path: Path) -> None:
    out = tmp_path / "hf"
    done = dualml("checkpoint", "convert", ckpt, out, "--to", "safetensors", "--shards", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{out} (safetensors): 7 tensors in 2 files")
    assert dualml("checkpoint", "show", out, "--like", ckpt).returncode == 0
    done = dualml("checkpoint", "convert", ckpt, tmp_path / "w.npz", "--weights", "--json")
    assert [t["name"] for t in json.loads(done.stdout)["tensors"]] == [
        "up.weight",
        "down.weight",
        "norm.bias",
    ]
    for one, other in ((tmp_path / "w.npz", ckpt), (ckpt, tmp_path / "w.npz")):
        assert dualml("checkpoint", "show", one, "--like", other).returncode == 0
    np.savez(tmp_path / "y.npz", **{"up.weights": np.zeros((8, 6))})
    done = dualml("checkpoint", "show", tmp_path / "y.npz", "--like", ckpt)
    assert done.returncode == 2
    assert "holds another model than" in done.stderr
    assert "near names: " in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nowhere"], "there is no checkpoint nowhere"),
        (["show", "{ckpt}/step00000010/rank0.safetensors"], "is one of 4 files; 1 is here"),
        (["convert", "{ckpt}", "{ckpt}"], "is there already"),
        (["convert", "{ckpt}", "x", "--to", "h5"], "--to 'h5'"),
        (["convert", "{ckpt}", "x", "--shards", "-1"], "--shards is from 1"),
        (["convert", "{ckpt}"], "DST"),
        (["convert", "/dev/null", "x"], "not a file"),
        (["convert", "{ckpt}", "/proc/x"], "/proc"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str, ckpt: Path, tmp_path: Path) -> None:
    done = dualml("checkpoint", *(w.format(ckpt=ckpt) for w in words), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.whole
def test_what_a_run_leaves(lab: Path, tmp_path: Path) -> None:
    """The weights of a trial can be shown, and converted together with the plan's frozen ones."""
    code, _ = run_lab(lab, tmp_path / "out", "--arm", "gd")
    assert code == 0
    trial = tmp_path / "out/trials/gd/numpy/seed0"
    done = dualml("checkpoint", "show", trial, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["format"], told["step"]) == ("trial", 12)
    assert {t["name"] for t in told["tensors"]} == {"fc.weight", "fc.bias"}
    done = dualml("checkpoint", "convert", trial, tmp_path / "w.safetensors", "--weights")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["checkpoint.md", "checkpoint.zh.md"])
def test_the_pages_name_every_format(page: str) -> None:
    from dualml.runner.checkpoint.convert import TARGETS

    text = (DOCS / page).read_text("utf-8")
    assert all(f"`{to}`" in text for to in TARGETS)
    assert "checkpoint.json" in text
