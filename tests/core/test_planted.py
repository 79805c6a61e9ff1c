"""The benchmark's planted faults; and one fault through the whole command line, without a
framework."""

from __future__ import annotations

import ast
import html
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_third_backend
from backend_package import path_with
from command import dualml
from test_causes_text import CAUSES

from dualml.parity.finder.context import PHASES
from dualml.parity.finder.search import read_searches, replay_all

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
from planted import unlisted  # noqa: E402
from planted.neutral import rule_of  # noqa: E402
from planted.plants import PLANTS, REFUSED  # noqa: E402
from planted.unlisted_neutral import RANKS  # noqa: E402
from planted.unlisted_rules import RULES  # noqa: E402

sys.path.remove(str(FOLDER))
package = test_third_backend.package


SMALLER = {"= 20\n": "= 6\n", ", 10, 20": "", "horizon = 20": "horizon = 6"}


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / "planted" / f"{module}.py").read_text("utf-8"))


def strings(node: ast.AST) -> set[str]:
    return {
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }


def compared(module: ast.Module, function: str) -> set[str]:
    """Return the names that a function of `neutral` compares its argument with."""
    (found,) = (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == function)
    tests = [n for n in ast.walk(found) if isinstance(n, ast.Compare)]
    return {name for n in tests if ast.unparse(n.left) == "name" for name in strings(n)}


def table(module: ast.Module, name: str) -> dict[str, str]:
    """Return key → function of a table, whose last rows may be ``**dict.fromkeys(keys,
    function)``."""
    (made,) = (
        n.value
        for n in module.body
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and n.targets[0].id == name
    )
    assert isinstance(made, ast.Dict)
    found: dict[str, str] = {}
    for key, value in zip(made.keys, made.values, strict=True):
        if key is None:
            assert isinstance(value, ast.Call)
            found |= dict.fromkeys(strings(value.args[0]), ast.unparse(value.args[1]))
        else:
            assert isinstance(key, ast.Constant)
            found[key.value] = ast.unparse(value)
    return found


NEUTRAL = tree("neutral")
BOTH = compared(NEUTRAL, "schedule") | compared(NEUTRAL, "ranks")


@pytest.mark.parametrize("side", ["in_torch", "in_mindspore"])
def test_every_plant_has_code_on_both_sides_and_no_other(side: str) -> None:
    own = {**table(tree(side), "LAYERS"), **table(tree(side), "OTHERS")}
    neutral = {name for name in PLANTS if rule_of(name) is not None} | BOTH
    plants = set(PLANTS) | set(REFUSED)
    assert (plants - neutral - set(own), (neutral | set(own)) - plants) == (set(), set())
    assert not neutral & set(own)
    for function, told in (("data", "held"), ("batches", "part_of"), ("micro_batches", "micro")):
        assert {n for n, f in own.items() if f == function} == compared(NEUTRAL, told)


def identifiers(module: ast.Module) -> set[str]:
    """Return the names that a module defines or uses."""
    nodes = list(ast.walk(module))
    return (
        {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        | {n.id for n in nodes if isinstance(n, ast.Name)}
        | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    )


def patches(module: ast.Module) -> Iterator[tuple[Path, str]]:
    """Yield (file of a backend, name in it that a module of plants replaces)."""
    homes: dict[str, Path] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dualml_"):
            for alias in node.names:
                path = FOLDER.parent / f"{node.module}.{alias.name}".replace(".", "/")
                homes[alias.name] = path.with_suffix(".py")
    for node in module.body:  # Training = training.…
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            homes[ast.unparse(node.targets[0])] = homes[ast.unparse(node.value.value)]
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    home = homes.get(ast.unparse(part).partition(".")[0], Path())
                    if isinstance(part, ast.Attribute) and home.is_file():
                        yield home, part.attr


@pytest.mark.parametrize("side", ["in_torch", "in_mindspore"])
def test_plants_replace_what_the_backend_calls(side: str) -> None:
    found = [(file, name) for file, name in patches(tree(side)) if not name.startswith("kept_")]
    assert len(found) > 15
    missing = [
        f"{file.name}: {name}"
        for file, name in found
        if name not in identifiers(ast.parse(file.read_text("utf-8")))
    ]
    assert missing == []


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_expected_of_the_finder_exists(name: str) -> None:
    plant = PLANTS[name]
    assert plant.phase in PHASES
    assert plant.causes
    assert set(plant.causes) <= set(CAUSES)
    arms = tomllib.loads((FOLDER / "planted/planted.toml").read_text("utf-8"))["arms"]
    text = tomllib.loads((FOLDER / "planted/planted_text.toml").read_text("utf-8"))["arms"]
    assert plant.arm in {**text, **arms}
    several = arms.get(plant.arm, {}).get("world_size", 1) > 1
    assert several or plant.phase != "aggregation"


def test_refused_plants_are_of_arms_with_ranks() -> None:
    arms = tomllib.loads((FOLDER / "planted/planted.toml").read_text("utf-8"))["arms"]
    assert all(arms[plant.arm]["world_size"] > 1 for plant in REFUSED.values())
    assert not set(REFUSED) & set(PLANTS)


@pytest.mark.parametrize("side", ["torch", "mindspore"])
def test_unlisted_plants_have_code_on_both_sides(side: str) -> None:
    (made,) = (
        n.value
        for n in tree(f"unlisted_{side}").body
        if isinstance(n, ast.Assign | ast.AnnAssign) and isinstance(n.value, ast.Dict)
    )
    assert isinstance(made, ast.Dict)
    own = {key.value for key in made.keys if isinstance(key, ast.Constant)}
    assert own | set(RANKS) | (set(RULES) if side == "torch" else set()) == set(unlisted.PLANTS)
    assert all(plant.phase in PHASES for plant in unlisted.PLANTS.values())
    assert {plant.half for plant in unlisted.PLANTS.values()} == set(unlisted.HALVES)


@pytest.mark.parametrize(
    ("name", "cause", "detail", "right"),
    [
        ("rank-zero-twice", "doubled-rank", {"ranks": [0], "weights": [2.0]}, True),
        ("rank-zero-twice", "doubled-rank", {"ranks": [1], "weights": [2.0]}, False),
        ("last-layer-slower", "scaled-tensors", {"tensors": ["fc3.weight"], "factor": 0.1}, False),
        (
            "last-layer-slower",
            "scaled-tensors",
            {"tensors": ["fc3.bias", "fc3.weight"], "factor": 0.1},
            True,
        ),
        ("first-gradient-dampened", "dampening", {"dampening": 0.0}, False),
        ("root-around-epsilon", "eps-inside-root", {"eps": 1e-2}, False),
        ("root-around-epsilon", "eps-inside-root", {"eps": 1e-3}, True),
    ],
)
def test_causes_of_unlisted_plants_are_judged(
    name: str, cause: str, detail: dict[str, Any], right: bool
) -> None:
    told = {"cause": cause, "detail": detail, "fits": True}
    assert unlisted.is_right(unlisted.PLANTS[name], told) is right
    verdict = unlisted.judge(unlisted.PLANTS[name], {**told, "others": []})
    assert verdict == ("right" if right else "wrong")


def test_there_are_many_plants_in_every_phase() -> None:
    assert len(PLANTS) >= 40
    assert {plant.phase for plant in PLANTS.values()} == set(PHASES)


# --- the command line -----------------------------------------------------------------------------


def with_package(package: Path, *words: object, there: bool = True) -> Any:
    path = path_with(package / "site") if there else os.environ.get("PYTHONPATH", "")
    return dualml(*words, env={"PYTHONPATH": path, "COLUMNS": "1000"})


def smaller(package: Path) -> Path:
    """Return the experiment with a smaller model and fewer updates."""
    text, path = test_third_backend.TOML.replace('"mlp"', '"softmax"'), package / "smaller.toml"
    path.write_text(re.sub("= 20\n|, 10, 20|horizon = 20", lambda m: SMALLER[m[0]], text))
    return path


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A run in which the third backend skips update 4, which shows at update 5."""
    faults = [test_third_backend.FAULTS["stale"]]
    place = test_third_backend.folder_with(tmp_path_factory.mktemp("stale"), faults)
    done = with_package(
        place, "run", smaller(place), "--backend", "numpy,single", "--out", place / "out"
    )
    return place, done


@pytest.fixture
def copy(stale: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of the run of `stale` that a test may change."""
    shutil.copytree(stale[0] / "out", tmp_path / "out")
    return tmp_path / "out"


def test_a_run_tells_why_backends_differ(stale: tuple[Path, Any]) -> None:
    package, done = stale
    assert done.returncode == 3, done.stderr
    (told,) = json.loads((package / "out/findings.json").read_text("utf-8"))["findings"]
    assert (told["status"], told["backend"]) == ("found", "single")
    assert (told["step"], told["phase"]) == (4, "update")
    assert told["causes"][0]["cause"] == "frozen-parameters"
    assert f"• {told['text']['en']}" in done.stdout
    assert "single leaves the rule at update 4, in the update of" in told["text"]["en"]
    page = (package / "out/report.html").read_text("utf-8")
    assert re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(told["text"]["en"])) in page


def test_findings_are_told_again(stale: tuple[Path, Any]) -> None:
    package, _ = stale
    told = json.loads((package / "out/findings.json").read_text("utf-8"))["findings"]
    done = with_package(package, "parity", package / "out", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["findings"] == told
    done = with_package(package, "parity", package / "out", "--lang", "zh")
    assert told[0]["text"]["zh"] in done.stdout


def test_find_looks_again(stale: tuple[Path, Any], copy: Path) -> None:
    before = json.loads((copy / "findings.json").read_text("utf-8"))
    (copy / "findings.json").unlink()
    assert (copy / "search.jsonl").exists()
    done = with_package(stale[0], "find", copy, "--seed", 1)
    assert (done.returncode, done.stdout) == (0, "no difference to explain\n")
    assert not (copy / "findings.json").exists()
    assert not (copy / "search.jsonl").exists()
    done = with_package(stale[0], "find", copy, "--json")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["findings"] == before["findings"]
    (finding,), (ranked,) = before["findings"], replay_all(read_searches(copy / "search.jsonl"))
    causes = [(one["cause"], one["score"], one["fits"]) for one in finding["causes"]]
    assert [(one.cause, one.score, one.fits) for one in ranked][: len(causes)] == causes


def test_a_backend_that_is_gone_is_said(stale: tuple[Path, Any], copy: Path) -> None:
    done = with_package(stale[0], "find", copy, there=False)
    assert done.returncode == 3, done.stderr
    assert "the replay needs backend 'single', which is not installed" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (told,) = json.loads((copy / "findings.json").read_text("utf-8"))["findings"]
    assert told["status"] == "not replayed"


@pytest.mark.parametrize("content", ["{", "[]", '{"findings": 3}', '{"findings": [{}]}'])
def test_damaged_findings_are_one_line(copy: Path, content: str) -> None:
    (copy / "findings.json").write_text(content)
    done = dualml("parity", copy)
    assert done.returncode == 2
    assert re.fullmatch(r"dualml: [^\n]*findings\.json[^\n]*\n", done.stderr)


def test_backends_that_agree_leave_nothing_to_find(package: Path) -> None:
    out = package / "out"
    done = with_package(
        package,
        "run",
        smaller(package),
        "--backend",
        "numpy,single",
        "--out",
        out,
        "--no-report",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).get("findings", []) == []
    done = with_package(package, "find", out)
    assert (done.returncode, done.stdout) == (0, "no difference to explain\n")
    done = with_package(package, "find", out, "--lang", "zh")
    assert (done.returncode, done.stdout) == (0, "没有需要解释的差异\n")
    assert not (out / "findings.json").exists()


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    done = dualml("find", tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"dualml: [^\n]+\n", done.stderr)
    assert not list(tmp_path.iterdir())
