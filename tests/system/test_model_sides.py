"""Comparisons of any two sides: one framework twice, two modes, two dtypes, two environments."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parity import ModelComparison, Side, compare

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
HERE = Path(__file__).parent
TORCH, MS = HERE / "sides_torch.py", HERE / "sides_ms.py"
SGD = {"name": "sgd", "lr": 0.1}
PLAIN = Side()


def draw(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def compare_with(a: str, b: str, first: Side = PLAIN, second: Side = PLAIN) -> ModelComparison:
    return compare(a, b, draw(6, 8), optimizer=SGD, steps=2, sides=(first, second), margin=10.0)


def test_two_pytorch_implementations_and_their_epsilon() -> None:
    found = compare_with(f"{TORCH}:Net", f"{TORCH}:Eps")
    assert (found.verdict, found.sides) == ("different", ("torch A", "torch B"))
    assert found.first is not None
    assert found.first.layer == "blocks.0.norm"
    said = found.paragraph()
    assert "(layer_norm) is 0.01 in torch B, 1e-05 in torch A" in said
    assert "with this change made to torch A, it computes there what torch B computes" in said
    assert "torch A" in found.first.elements[0]
    assert found.describe()["sides"] == ["torch A", "torch B"]


def test_fused_attention_runs_and_is_equal_to_its_formula() -> None:
    found = compare_with(f"{TORCH}:Attention", f"{TORCH}:WrittenOut")
    assert found.verdict == "equal", found.paragraph()
    assert found.phases["forward"]["distance"] > 0  # a kernel rounds in its own way


@pytest.mark.parametrize(
    ("wrong", "setting"), [("WrongScale", ("scale", 0.3)), ("AllKeys", ("is_causal", False))]
)
def test_settings_of_fused_attention_are_named(wrong: str, setting: tuple[str, Any]) -> None:
    found = compare_with(f"{TORCH}:Attention", f"{TORCH}:{wrong}")
    assert found.verdict == "different"
    assert found.explanation is not None
    (cause,) = found.explanation["causes"]
    named = {(one["operation"], one["argument"], one["value"]) for one in cause["alterations"]}
    assert ("scaled_dot_product_attention", *setting) in named, found.paragraph()


def test_mindspore_first_is_the_second_side() -> None:
    found = compare_with(f"{MS}:Plain", f"{TORCH}:Plain")
    assert (found.verdict, found.sides) == ("equal", ("torch", "mindspore")), found.paragraph()


def test_two_mindspore_cells_with_another_axis() -> None:
    assert compare_with(f"{MS}:Softmax", f"{MS}:Plain").verdict == "different"
    found = compare_with(f"{MS}:Softmax", f"{MS}:OtherAxis")
    assert (found.verdict, found.sides) == ("different", ("mindspore A", "mindspore B"))
    assert found.first is not None
    assert found.first.layer == "softmax"
    assert found.explanation is not None
    assert found.explanation["causes"] == []
    assert found.explanation["place"]["name"] == found.explanation["other"]["name"] == "Softmax"
    said = found.paragraph()
    assert "The two calls have other settings: argument 1 = [-1] and [0]" in said
    assert "No changes are tried on a mindspore model" in said
    assert "sides_ms.py line" in said
    assert "对 mindspore 模型不做改动尝试" in found.paragraph("zh")


def test_a_model_of_another_framework_than_its_file_shows() -> None:
    found = compare_with(f"{TORCH}:Plain", f"{TORCH}:make_cell")
    assert (found.verdict, found.sides) == ("equal", ("torch", "mindspore")), found.paragraph()
    with pytest.raises(UserError, match=r"make_cell builds a Plain.*--b-framework"):
        compare_with(f"{TORCH}:Plain", f"{TORCH}:make_cell", second=Side(framework="torch"))


def test_eager_and_compiled_pytorch_are_equal_with_the_same_dropout() -> None:
    found = compare_with(f"{TORCH}:Net", f"{TORCH}:Net", second=Side(mode="compile"))
    assert (found.verdict, found.sides) == ("equal", ("torch eager", "torch compile"))
    assert {"forward", "loss", "gradient", "update"} <= set(found.phases)
    assert found.phases["forward"]["arrays"] == found.steps  # the outputs alone
    assert found.environment["torch compile"]["mode"] == "compile"


def test_the_smallest_module_that_the_compiler_changes() -> None:
    found = compare_with(
        f"{TORCH}:Miscompiled", f"{TORCH}:Miscompiled", second=Side(mode="compile")
    )
    assert found.verdict == "different"
    assert found.explanation is not None
    (row,) = found.explanation["compiler"]
    assert (row["smallest"]["module"], row["smallest"]["type"]) == ("scale", "Halving")
    said = found.paragraph()
    assert "The compiler of torch compile makes the difference (tested)" in said
    assert "scale (Halving, sides_torch.py line" in said
    assert "编译器" in found.paragraph("zh")


def test_pynative_and_graph_mode_are_equal() -> None:
    found = compare_with(f"{MS}:Plain", f"{MS}:Plain", second=Side(mode="graph"))
    assert (found.verdict, found.sides) == ("equal", ("mindspore pynative", "mindspore graph"))
    assert found.environment["mindspore graph"]["mode"] == "graph"


def test_a_port_in_graph_mode_and_what_the_compiler_makes_of_it() -> None:
    found = compare_with(f"{TORCH}:Plain", f"{MS}:Plain", second=Side(mode="graph-O1"))
    assert (found.verdict, found.sides) == ("equal", ("torch", "mindspore graph-O1"))
    other = compare_with(f"{MS}:Aliasing", f"{MS}:Aliasing", second=Side(mode="graph"))
    assert other.verdict == "different", other.paragraph()
    assert other.explanation is not None
    (row,) = other.explanation["compiler"]
    assert (row["smallest"]["module"], row["smallest"]["type"]) == ("alias", "Aliased")


def test_a_difference_that_exists_without_the_compiler_is_not_its_fault() -> None:
    found = compare_with(f"{MS}:Softmax", f"{MS}:OtherAxis", second=Side(mode="graph"))
    assert (found.verdict, found.sides) == ("different", ("mindspore A", "mindspore B"))
    assert found.first is not None
    assert found.first.layer == "softmax"  # seen without the compiler alone
    assert "The compiler of mindspore graph is not the cause" in found.paragraph()
    assert "编译器不是原因" in found.paragraph("zh")


def test_bfloat16_is_judged_by_its_own_envelope() -> None:
    low = Side(dtype="bfloat16")
    found = compare_with(f"{TORCH}:Net", f"{TORCH}:Net", second=low)
    assert (found.verdict, found.sides) == ("equal", ("torch float32", "torch bfloat16"))
    assert found.phases["forward"]["envelope"] >= 2**-7
    other = compare_with(f"{TORCH}:Net", f"{TORCH}:Unactivated", second=low)
    assert other.verdict == "different", other.paragraph()
    assert other.first is not None
    assert other.first.layer in ("blocks.1", "blocks.1.act")


def test_the_interpreter_of_another_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "env"],
        check=True,
        timeout=100,
    )
    # The packages of this environment, also if it is a venv itself.
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    python = tmp_path / "env" / "bin" / "python"
    found = compare_with(f"{TORCH}:Net", f"{TORCH}:Net", second=Side(python=python))
    assert (found.verdict, found.worst) == ("equal", 0.0), found.paragraph()
    versions = {found.environment[side]["torch"] for side in found.sides}
    assert len(versions) == 1
    (site / "outer.pth").unlink()
    (tmp_path / "env" / "pyvenv.cfg").write_text(
        (tmp_path / "env" / "pyvenv.cfg").read_text().replace("= true", "= false")
    )
    with pytest.raises(
        UserError, match=r"--b-python: .* has no torch, numpy.* -m pip install torch"
    ):
        compare_with(f"{TORCH}:Net", f"{TORCH}:Net", second=Side(python=python))


@pytest.mark.parametrize(
    ("a", "b", "words", "said"),
    [
        (f"{TORCH}:Net", f"{TORCH}:Net", [], "nothing to compare: both sides are Net"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--b-mode", "graph"], "modes are eager, compile"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--a-device", "tpu"], "--a-device: unknown device 'tpu'"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--b-dtype", "int8"], "--b-dtype: unknown dtype 'int8'"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--b-python", "none/python"], "there is no program"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--b-framework", "torhc"], "did you mean 'torch'"),
        (f"{MS}:Dropping", f"{MS}:Dropping", ["--b-mode", "graph"], "(--eval, train=False)"),
        (f"{TORCH}:Net", f"{TORCH}:Eps", ["--b-device", "cuda:97"], "CUDA device"),
    ],
)
def test_bad_input_is_one_line(a: str, b: str, words: list[str], said: str) -> None:
    command = [sys.executable, "-P", "-m", "dualml", "compare", a, b, "--shape", "6,8", *words]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    # A slow machine also says every few seconds what it is doing.
    lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("… ")]
    assert len(lines) == 1


def test_the_command_line_takes_sides_and_writes_json() -> None:
    words = ["--shape", "6,8", "--eval", "--loss", "none", "--b-dtype", "bfloat16", "--json"]
    command = [sys.executable, "-P", "-m", "dualml", "compare", f"{TORCH}:Net", f"{TORCH}:Net"]
    done = subprocess.run(
        [*command, *words], text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sides"] == ["torch float32", "torch bfloat16"]
    assert result["environment"]["torch bfloat16"]["dtype"] == "bfloat16"
