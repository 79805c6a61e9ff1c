"""The pairs of the gauntlet name existing imports of their zoos: a refused pair measures
nothing."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

GAUNTLET = Path(__file__).resolve().parents[2] / "benchmarks" / "gauntlet"
PAIRS = tomllib.loads((GAUNTLET / "pairs.toml").read_text("utf-8"))
#: Modules that the file of a pair imports by itself.
OF_ITS_OWN = {"transformers"}


@pytest.mark.parametrize("side", ["torch", "mindspore"])
def test_a_pair_names_what_its_zoo_has(side: str) -> None:
    body = ast.parse((GAUNTLET / f"zoo_{side}.py").read_text("utf-8")).body
    names = {
        (alias.asname or alias.name).partition(".")[0]
        for one in body
        if isinstance(one, ast.Import | ast.ImportFrom)
        for alias in one.names
    } | {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    for name, pair in PAIRS.items():
        expression = ast.walk(ast.parse(pair[side], mode="eval"))
        roots = {node.id for node in expression if isinstance(node, ast.Name)}
        assert roots <= names | OF_ITS_OWN | {side}, name


def test_a_pair_at_real_size_has_its_builders_and_its_input() -> None:
    for name, pair in tomllib.loads((GAUNTLET / "real.toml").read_text("utf-8")).items():
        assert len(pair.keys() & {"size", "text", "features"}) == 1, name
        assert pair["packages"], name
        if "a" not in pair:
            assert {"torch", "mindspore"} <= pair.keys(), name
            continue
        tree = ast.parse((GAUNTLET / "pairs" / f"{name}.py").read_text("utf-8"))
        functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        wanted = {f"build_{pair['a']}", f"build_{pair['b']}"}
        assert wanted | ({"build_mended"} if "mended" in pair else set()) <= functions, name
