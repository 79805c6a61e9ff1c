"""Traces stored in folders: reread, judged, damaged, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml, strict
from model_traces import scale_slightly, spoiled, trace, write_trace

from dualml.common.errors import UserError
from dualml.parity import compare_traces
from dualml.parity.models.trace import array_key, read_trace


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return (
        write_trace(tmp_path / "a", trace()),
        write_trace(tmp_path / "b", trace(1e-7, other=True)),
    )


def test_a_trace_comes_back_as_it_was(folders: tuple[Path, Path]) -> None:
    a, made = read_trace(folders[0]), trace()
    assert a.tensors == made.tensors
    assert a.order == made.order
    assert a.envelope == made.envelope
    assert a.arrays.keys() == made.arrays.keys()
    assert all(np.array_equal(a.arrays[name], value) for name, value in made.arrays.items())
    assert compare_traces(folders[1], folders[0]).sides == ("torch", "mindspore")


def edited(folder: Path, **values: Any) -> None:
    told = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps({**told, **values}))


def delete_order(folder: Path) -> None:
    told = json.loads((folder / "trace.json").read_text())
    del told["order"]
    (folder / "trace.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "trace.json").unlink(), "no trace here"),
        (lambda f: (f / "trace.json").write_text("{"), "not a readable trace"),
        (lambda f: (f / "trace.json").write_text("[]"), "not a readable trace"),
        (lambda f: (f / "trace.json").write_text("{}"), "not a trace of dualml"),
        (lambda f: edited(f, format=9), "format 9; this version reads 1"),
        (lambda f: edited(f, steps=7), "7 steps, but 2 inputs"),
        (lambda f: edited(f, names=["x"]), "x and 0 more missing"),
        (lambda f: edited(f, order=[["gone"], []]), "the output of gone in step 1 is missing"),
        (lambda f: edited(f, parameters=[{"name": "w"}]), "parameters.0.shape is missing"),
        (delete_order, "order is missing"),
        (lambda f: (f / "trace.safetensors").unlink(), "not a readable trace"),
        (
            lambda f: (f / "trace.safetensors").write_bytes(
                (f / "trace.safetensors").read_bytes()[:500]
            ),
            "not a readable trace",
        ),
    ],
)
def test_a_bad_trace_is_one_clear_line(
    folders: tuple[Path, Path], spoil: Callable[[Path], Any], said: str
) -> None:
    spoil(folders[1])
    with pytest.raises(UserError, match=said) as caught:
        compare_traces(*folders)
    assert "\n" not in str(caught.value)


def test_traces_of_other_plans_are_refused_with_the_part(tmp_path: Path) -> None:
    a = write_trace(tmp_path / "a", trace())
    b = trace(1e-7, other=True)
    b.inputs = [["x", "y"], ["x", "z"]]
    with pytest.raises(UserError, match="other inputs: step 2, tensor 1"):
        compare_traces(a, write_trace(tmp_path / "inputs", b))
    c = trace(1e-7, other=True)
    c.arrays[array_key("parameters", 0, "fc.bias")] += 1
    with pytest.raises(UserError, match=r"other initial weights: 1 of 4 differ, first fc.bias"):
        compare_traces(a, write_trace(tmp_path / "weights", c))


def test_the_command_line_judges_traces(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    done = dualml("compare", *folders, "--json")
    assert done.returncode == 0, done.stderr
    assert strict(done.stdout)["verdict"] == "equal"
    spoilt = spoiled(scale_slightly, "gradient", 1, "norm.gamma")
    wrong = write_trace(tmp_path / "wrong", spoilt)
    done = dualml("compare", folders[0], wrong, "--lang", "zh")
    assert done.returncode == 3
    assert "不同" in done.stdout
    assert "LayerNorm" in done.stdout
    mapped = tmp_path / "map.toml"
    mapped.write_text('norm.weight = "norm.gamma"\n"fc.weight" = ["fc.weight", "transpose"]\n')
    assert dualml("compare", *folders, "--map", mapped).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "b"), "'nowhere' is neither"),
        (("a", "m.py:Net"), "a folder, the other is not"),
        (("a", "b", "--loss", "mse"), "--loss: of models; a and b are traces"),
        (("a", "b", "--map", "none.toml"), "none.toml: cannot be read"),
        (("x.py:A", "y.py:B"), "either --inputs FILE.npz or --shape 4,8"),
        (("x.py:A", "y.py:B", "--shape", "4,x"), "--shape takes lengths"),
        (("x.py:A", "y.py:B", "--inputs", "x.npz"), "--inputs: there is no file x.npz"),
    ],
)
def test_words_that_cannot_be_meant(
    folders: tuple[Path, Path],
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dualml.interface.cli import main

    monkeypatch.chdir(folders[0].parent)
    monkeypatch.setattr("sys.argv", ["dualml", "compare", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
