"""The two sides of a comparison of models: what is found, refused and said without a framework."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.backend import BackendInfo
from dualml.common.errors import UserError
from dualml.parity.causes.located import differing_settings
from dualml.parity.models import side_jobs
from dualml.parity.models.compiled_modules import (
    CompilerTest,
    direct_parts,
    find_smallest_module,
)
from dualml.parity.models.compiler import explain_by_compiler
from dualml.parity.models.interpreter import find_package, probe_interpreter, user_paths
from dualml.parity.models.operations import Operation
from dualml.parity.models.sentences import describe_causes
from dualml.parity.models.sides import (
    ResolvedSide,
    Side,
    coarsest_precision,
    label_sides,
    refuse_same_run,
    resolve_side,
)

TORCH = BackendInfo("torch", "torch", "", "dualml_torch.backend:X", modes=("eager", "compile"))
MS = BackendInfo(
    "mindspore", "mindspore", "", "dualml_ms.backend:X", modes=("pynative", "graph", "graph-O1")
)
MODEL = {"module": "net", "file": "/x/net.py", "name": "Net"}


def side(info: BackendInfo = TORCH, letter: str = "a", **settings: Any) -> ResolvedSide:
    settings = {"mode": info.modes[0], "model": MODEL, **settings}
    return ResolvedSide(letter, info, **settings)


def test_what_is_not_known_is_torch_and_mindspore_by_position() -> None:
    names = side_jobs.name_frameworks((int, int), [MODEL, MODEL], (Side(), Side()))
    assert names == ("torch", "mindspore")
    said = (Side(framework="mindspore"), Side(framework="torch"))
    assert side_jobs.name_frameworks((int, int), [MODEL, MODEL], said) == ("mindspore", "torch")


@pytest.mark.parametrize(
    ("a", "b", "labels"),
    [
        (side(), side(MS), ("torch", "mindspore")),
        (side(), side(MS, mode="graph"), ("torch", "mindspore graph")),
        (side(), side(), ("torch A", "torch B")),
        (side(), side(mode="compile"), ("torch eager", "torch compile")),
        (side(MS), side(MS, mode="graph-O1"), ("mindspore pynative", "mindspore graph-O1")),
        (side(), side(dtype="bfloat16"), ("torch float32", "torch bfloat16")),
        (side(device="cuda"), side(), ("torch cuda", "torch cpu")),
        (
            side(mode="compile"),
            side(mode="compile", dtype="float16"),
            ("torch float32", "torch float16"),
        ),
    ],
)
def test_sides_have_names_that_distinguish_them(
    a: ResolvedSide, b: ResolvedSide, labels: tuple[str, str]
) -> None:
    assert tuple(one.label for one in label_sides(a, b)) == labels


def test_pytorch_is_the_first_side_and_keeps_its_functions() -> None:
    first, second = side_jobs.add_functions(
        [side(MS), side(letter="b")], ["loss A", "loss B"], ["optimizer A", "optimizer B"]
    )
    assert (first.info, first.letter, first.loss, first.optimizer) == (
        TORCH,
        "b",
        "loss B",
        "optimizer B",
    )
    assert (second.label, second.loss) == ("mindspore", "loss A")


def test_the_same_model_in_the_same_way_is_nothing_to_compare() -> None:
    with pytest.raises(UserError, match=r"both sides are Net of /x/net.py in mode eager"):
        refuse_same_run(side(), side(letter="b"))
    for other in (
        side(mode="compile"),
        side(dtype="float16"),
        side(device="cuda"),
        side(model={**MODEL, "name": "Other"}),
        side(MS),
    ):
        refuse_same_run(side(), other)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "graph"}, "--a-mode: torch has no mode 'graph'; its modes are eager, compile"),
        ({"dtype": "float64"}, "--a-dtype: unknown dtype 'float64'"),
        ({"device": "tpu"}, "--a-device: unknown device 'tpu'"),
        ({"python": "no/such/python"}, "--a-python: there is no program 'no/such/python'"),
        ({"python": "true"}, "true is not a Python interpreter that answers"),
    ],
)
def test_settings_that_cannot_be_met(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve_side(Side(**settings), "a", TORCH, MODEL, tmp_path)


def test_an_interpreter_is_asked_what_it_has(tmp_path: Path) -> None:
    assert probe_interpreter(sys.executable, "--b-python", "json") is None
    link = tmp_path / "python"
    link.symlink_to(os.path.realpath(sys.executable))
    with pytest.raises(UserError, match=r"--b-python: .*has no no_such_framework.*pip install"):
        probe_interpreter(link, "--b-python", "no_such_framework")


def test_an_interpreter_gets_dualml_and_nothing_else_of_this_environment(tmp_path: Path) -> None:
    script = tmp_path / "python"
    versions = {"numpy": "1.26.4", "json": "2.5", "pydantic": "2.0"}
    answer = json.dumps([list(sys.version_info[:3]), versions])
    script.write_text(f"#!/bin/sh\necho 'a notice'\necho '{answer}'\n")
    script.chmod(0o755)
    found = probe_interpreter(script, "--b-python", "json")
    assert found is not None
    assert found.framework_version == "2.5"
    assert "safetensors" in found.missing
    assert "pydantic" not in found.missing
    names = {one.name for one in found.make_overlay(tmp_path / "overlay").iterdir()}
    assert {"dualml", "safetensors"} <= names
    assert not {"numpy", "pydantic", "torch"} & names
    package = find_package("dualml")
    assert package is not None
    assert (tmp_path / "overlay" / "dualml").resolve() == package


def test_paths_of_this_installation_are_not_the_users(tmp_path: Path) -> None:
    site = str(Path(np.__file__).parents[1])
    assert user_paths([str(tmp_path), site, os.path.dirname(os.__file__)]) == [str(tmp_path)]


def test_a_backend_that_cannot_record_models_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = BackendInfo("jax", "json", "pip install jax", "json.decoder:X")
    with pytest.raises(UserError, match=r"backend jax cannot record models: json has no module"):
        side_jobs.require_backends(["jax", "jax"], {"jax": jax})
    with pytest.raises(UserError, match=r"--a-framework: there is no backend 'jxa'.*'jax'"):
        side_jobs.require_backends(["jxa", "jax"], {"jax": jax})


def test_both_sides_begin_with_numbers_of_the_lower_precision() -> None:
    assert coarsest_precision([side(), side(dtype="bfloat16")]) == "bf16"
    assert coarsest_precision([side(dtype="float16"), side()]) == "fp16"
    assert coarsest_precision([side(), side(MS)]) == "fp32"


def test_the_search_descends_to_the_smallest_module() -> None:
    names = ["", "a", "a.0.norm", "a.0.fc", "ab", "b"]
    assert direct_parts("", names) == ["a", "ab", "b"]
    assert direct_parts("a", names) == ["a.0.norm", "a.0.fc"]
    wrong = {"", "a", "a.0.fc"}
    found = find_smallest_module(names, lambda name: {"tensor": name} if name in wrong else None)
    assert found == ("a.0.fc", {"tensor": "a.0.fc"})
    assert find_smallest_module(names, lambda name: None) is None
    assert find_smallest_module(names, lambda name: {} if not name else None) == ("", {})


class FakeReplay:
    """A module whose compiled output is off by a relative distance."""

    def __init__(self, off: float) -> None:
        self.off, self.calls = off, {"": None}

    def run(self, name: str, mode: str, move: Any) -> dict[str, Any]:
        weights = {"w": np.array([0.3, 0.7], np.float32)}
        value = (weights if move is None else move(weights))["w"]
        if mode and np.isinf(self.off):
            raise ValueError("no such operator")
        return {"output": value * np.float32(1 + (self.off if mode else 0))}

    def source(self, name: str) -> Any:
        return "Fake", FakeReplay.run


def test_a_compiled_module_is_judged_by_its_measured_rounding() -> None:
    for off, different in ((0.0, False), (1e-7, False), (1e-3, True)):
        test = CompilerTest(FakeReplay(off), "compile", 10.0, 2**-23, 3, "fp32", 0)
        assert (test.find_difference("") is not None) == different
        assert test.tried == 1
    test = CompilerTest(FakeReplay(float("inf")), "compile", 10.0, 2**-23, 3, "fp32", 0)
    assert test.find_difference("") == {"raised": "ValueError: no such operator"}


def test_a_compiler_is_said_to_be_the_cause() -> None:
    labelled = label_sides(side(), side(mode="compile"))
    smallest: dict[str, Any] = {"module": "half", "type": "Half", "file": "/x/net.py", "line": 7}
    value = {"tensor": "output", "distance": 0.5, "envelope": 1e-6}
    for result, said in (
        ({"tried": 3, "smallest": {**smallest, **value}}, "half (Half, net.py line 7): its output"),
        ({"tried": 3, "smallest": {**smallest, "raised": "ValueError: x"}}, "raises ValueError: x"),
        ({"tried": 3, "smallest": {**smallest, **value, "module": ""}}, "the whole model (Half"),
        ({"tried": 3, "smallest": None}, "the model shows no difference"),
        (None, "ended without a result"),
    ):
        explanation = explain_by_compiler([labelled[1]], {"torch compile": result})
        text = " ".join(describe_causes("en", explanation, ("a", "b"), 1))
        assert text.startswith(
            "The compiler of torch compile makes the difference (tested): in mode eager"
        )
        assert said in text
        assert "编译器" in " ".join(describe_causes("zh", explanation, ("a", "b"), 1))


def test_settings_of_two_calls_of_one_function() -> None:
    one = Operation(0, "Softmax", (), {"axis": -1, "name": "x"}, ((2, 2),))
    other = Operation(0, "Softmax", (), {"axis": 0, "name": "x"}, ((2, 2),))
    rows = differing_settings(one, other)
    assert rows == [{"name": "axis", "left": "-1", "right": "0"}]
    assert differing_settings(one, Operation(0, "ReLU", (), {}, ((2, 2),))) == []
    explanation = {
        "causes": [],
        "equal": False,
        "unsearched": "mindspore",
        "evidence": [{"key": "settings", "rows": rows}],
    }
    said = " ".join(describe_causes("en", explanation, ("a", "b"), 1))
    assert "other settings: axis = -1 and 0." in said
    assert "No changes are tried on a mindspore model" in said
    assert "axis 分别为 -1 和 0" in " ".join(describe_causes("zh", explanation, ("a", "b"), 1))


def test_a_worker_imports_and_keeps_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "5")
    info = replace(TORCH, preload=("dualml_torch.backend", "torch.optim"), environ=lambda n: {})
    side = resolve_side(Side(), "a", info, MODEL, tmp_path)
    without = side_jobs.make_launch(side, ["x"], 1, tmp_path / "log")
    updated = replace(side, optimizer={"rule": {"name": "sgd"}})
    assert without.preload == ("dualml_torch.models",)
    assert side_jobs.make_launch(updated, ["x"], 1, tmp_path / "log").preload == (
        "dualml_torch.models",
        "torch.optim",
    )
    kept = {name: x for name, x in without.environ.items() if name.startswith("MALLOC")}
    assert kept == {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "5",  # the user's
        "MALLOC_ARENA_MAX": "1",
    }
    returning = side_jobs.make_launch(side, ["x"], 1, tmp_path / "log", reuses=False)
    assert not [name for name in returning.environ if name.startswith("MALLOC")]
