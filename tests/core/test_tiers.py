"""Every test runs in a tier: with `make test`, in the matrix, or with ``--slow`` for a reason."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiers
from conformance.account import Judged
from conformance.covering import covering, goals, values_of
from tiers import Entry, chosen_tiers, longest_first, tier_of, tiers_of_file

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = tiers.read_entries()
FAULTS = tomllib.loads((ROOT / "tests/faults/faults.toml").read_text("utf-8"))


def loaded(name: str) -> ModuleType:
    """Return a module of tests/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"tests_{name}", ROOT / f"tests/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def matrix_commands() -> dict[str, str]:
    """Return environment of tox → its pytest command, with substitutions as they are written."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", "utf-8")
    listed = re.split(r",\s*", parser["tox"]["env_list"])
    return {name: parser[f"testenv:{name}"]["commands"] for name in listed}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
def test_an_entry_names_something_that_exists(entry: Entry) -> None:
    file, _, test = entry.place.partition("::")
    assert (ROOT / file).exists()
    assert not test or f"def {test}(" in (ROOT / file).read_text("utf-8")
    assert len(entry.reason) > 10


def test_no_key_is_in_two_tables() -> None:
    keys = [entry.key for entry in ENTRIES]
    assert sorted(keys) == sorted(set(keys))


def test_the_longest_entry_counts_and_marks_decide_without_one() -> None:
    entries = sorted(
        [
            Entry("tests/a", "matrix", ""),
            Entry("tests/a/x.py", "test", ""),
            Entry("tests/a/x.py::test_f torch", "slow", ""),
            Entry("tests/a/x.py ms-gpt", "slow", ""),
        ],
        key=lambda entry: -len(entry.key),
    )
    assert tier_of("tests/a/y.py::test_f", (), entries) == "matrix"
    assert tier_of("tests/a/x.py::test_f[numpy-torch]", ("system",), entries) == "slow"
    assert tier_of("tests/a/x.py::test_f[numpy]", ("system",), entries) == "test"
    assert tier_of("tests/a/x.py::test_f[numpy]", ("slow",), entries) == "slow"
    assert tier_of("tests/b/x.py::test_f", ("system",), entries) == "matrix"
    assert tier_of("tests/b/x.py::test_f", ("timeout",), entries) == "test"
    assert tiers_of_file("tests/a/x.py", "torch", entries) == {"test", "slow"}
    assert tiers_of_file("tests/a/x.py", "ms", entries) == {"test", "slow"}
    assert tiers_of_file("tests/a/x.py", "numpy", entries) == {"test"}


def test_every_session_has_its_tiers() -> None:
    assert chosen_tiers("test", slow=True) == {"test"}
    assert chosen_tiers("matrix", slow=False) == {"matrix"}
    assert chosen_tiers("matrix", slow=True) == {"matrix", "pynative", "slow"}
    assert chosen_tiers("pynative", slow=True) == {"pynative"}
    assert chosen_tiers(None, slow=False) == {"test", "matrix", "pynative"}


def test_every_folder_is_run() -> None:
    """Folders of `make test` are in the matrix, too, unless all of their tests are in `make test`;
    other folders are of the tier `matrix` and run there."""
    folders = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/*/test_*.py")}
    paths = {path for part in loaded("__main__").PARTS.values() for path in part.paths}
    parts = {path.rpartition("/")[0] if path.endswith(".py") else path for path in paths}
    matrix = {f for f in folders for command in matrix_commands().values() if f in command.split()}
    assert folders == parts | matrix
    for folder in parts - matrix:
        assert not re.search(
            r"mark\.(system|whole)",
            "".join(p.read_text("utf-8") for p in (ROOT / folder).glob("*.py")),
        ), folder
    for folder in matrix - parts:
        assert Entry(folder, "matrix", "").key in {entry.key for entry in ENTRIES}, folder


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught_without_slow(name: str) -> None:
    node = FAULTS[name]["test"]
    path, _, test = node.partition("[")[0].partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.dump(n)]
    defined = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == test]
    found = "".join(ast.unparse(d) for n in defined for d in n.decorator_list)
    found += "".join(map(ast.unparse, marks))
    assert tier_of(node, re.findall(r"mark\.(\w+)", found), ENTRIES) != "slow"


def test_files_are_taken_longest_first() -> None:
    durations = {"a": 3.0, "b": 9.0, "c torch": 20.0, "c mindspore": 1.0}
    assert longest_first(["a", "d", "c", "b", "a"], "torch", durations) == ["c", "b", "d", "a"]
    assert longest_first(["a", "d", "c", "b"], "mindspore", durations) == ["b", "d", "a", "c"]


def test_durations_name_files_that_exist() -> None:
    for name, seconds in tiers.read_durations().items():
        assert (ROOT / name.partition(" ")[0]).is_file(), name
        assert seconds >= 0


# --- cases that cover many ------------------------------------------------------------------------


def test_few_cases_cover_every_pair_that_some_case_has() -> None:
    product = {
        f"{a}{b}{c}": {"a": a, "split": {"b": b, "c": c}, "sizes": [a]}
        for a in range(3)
        for b in range(3)
        for c in range(2)
    }
    chosen = covering(product)
    assert len(chosen) == 9
    assert chosen == [title for title in product if title in set(chosen)]

    def covered(titles: Any) -> set[Any]:
        return set().union(*(goals(frozenset(values_of(product[t])), 2) for t in titles))

    assert covered(chosen) == covered(product)
    assert len(covering(product, strength=1)) == 3
    assert "sizes" not in {key for key, _ in values_of(product["000"])}


# --- what was judged ------------------------------------------------------------------------------


def test_a_session_answers_for_its_own_files() -> None:
    judged = Judged({"a.py": 3}, {"a.py": {"old"}})
    listed = {"no_tests": [], "skipped": {"a.py": ["old"], "b.py": ["later"]}}
    assert list(judged.differences(listed, ["a.py"])) == []
    told = "\n".join(judged.differences(listed, ["a.py", "b.py"]))
    assert "no test in b.py passed" in told
    assert "b.py skips something, and it did not: later" in told
    told = "\n".join(
        judged.differences({**listed, "skipped": {"a.py": ["else"]}}, ["a.py"], ["a.py"])
    )
    assert told == "skipped in a.py, and judged.toml does not say so: old"
