"""The layering rule, checked by reading the imports and by importing everything without
frameworks."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from source_trees import parse_source

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {"torch", "torchvision", "mindspore"}
BACKENDS = {"dualml_torch", "dualml_ms"}
#: package → modules it may not import.
FORBIDDEN = {
    "dualml": FRAMEWORKS | BACKENDS,
    "dualml_torch": {"mindspore", "dualml_ms"},
    "dualml_ms": {"torch", "torchvision", "dualml_torch"},
}
#: Files that only one backend has, with reasons.
SINGLE_BACKEND = ROOT / "tests" / "core" / "single_backend.toml"
#: Imports that must not delay the command line's first output.
HEAVY = ("numpy", "scipy", "pydantic", "sklearn", "pooch", "markupsafe", "requests")


def imports(source: str) -> set[str]:
    """Return the top-level names of all imports, also inside functions and in
    ``importlib.import_module``."""
    found: set[str] = set()
    for node in ast.walk(parse_source(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and node.args:
            called = node.func
            name = getattr(called, "attr", getattr(called, "id", ""))
            first = node.args[0]
            if name in ("import_module", "__import__") and isinstance(first, ast.Constant):
                found.add(str(first.value).partition(".")[0])
    return found


def files(package: str) -> dict[str, str]:
    """Return path inside the package → source."""
    folder = ROOT / package
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}


Graph = dict[str, set[str]]


def module_of(path: str, package: str) -> str:
    """Return the module name of a path; ``x/__init__.py`` is the module ``package.x``."""
    parts = [package, *Path(path).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph(sources: dict[str, str]) -> Graph:
    """Return module → modules of ``sources`` that it imports anywhere, also for annotations.

    ``from x import y`` is an import of ``x.y`` if there is such a module, else of ``x``.
    """
    edges: Graph = {}
    for name, text in sources.items():
        edges[name] = set()
        for node in ast.walk(parse_source(text)):
            if isinstance(node, ast.Import):
                edges[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                edges[name] |= {n if n in sources else str(node.module) for n in inner.values()}
        edges[name] &= set(sources) - {name}
    return edges


def cycles(edges: Graph) -> set[frozenset[str]]:
    """Return the strongly connected components with more than one node."""
    reach = {start: {start} for start in edges}
    for start, seen in reach.items():
        waiting = [start]
        while waiting:
            new = edges.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
    pairs = itertools.combinations(edges, 2)
    tied = [{a, b} for a, b in pairs if b in reach[a] and a in reach[b]]
    return {frozenset({a for p in tied if p & pair for a in p}) for pair in tied}


def package_graph(edges: Graph) -> Graph:
    """Return the import graph between the packages one level below the top."""
    between: Graph = {}
    for name, others in edges.items():
        here = ".".join(name.split(".")[:2])
        there = {".".join(other.split(".")[:2]) for other in others}
        between[here] = between.get(here, set()) | there - {here}
    return between


def test_imports_finds_every_kind() -> None:
    code = (
        "import a.b\n"
        "from c.d import e\n"
        "from . import near\n"
        "def f():\n"
        "    import g\n"
        "    importlib.import_module('h.i')\n"
        "    __import__('j')\n"
        "if TYPE_CHECKING:\n"
        "    from k import l\n"
    )
    assert imports(code) == {"a", "c", "g", "h", "j", "k"}


def test_the_graph_sees_every_import_and_its_cycles() -> None:
    sources = {
        "p": "import p.a",
        "p.a": "def f():\n    from p import b, name",
        "p.b": "if TYPE_CHECKING:\n    from p.c.deep import C",
        "p.c": "from p.c.deep import C",
        "p.c.deep": "import p.a",
        "p.d": "from p.c import C\nimport os",
    }
    edges = graph(sources)
    assert edges == {
        "p": {"p.a"},
        "p.a": {"p", "p.b"},
        "p.b": {"p.c.deep"},
        "p.c": {"p.c.deep"},
        "p.c.deep": {"p.a"},
        "p.d": {"p.c"},
    }
    assert cycles(edges) == {frozenset({"p", "p.a", "p.b", "p.c.deep"})}
    assert cycles(package_graph(edges)) == {frozenset({"p", "p.a", "p.b", "p.c"})}
    assert cycles({"a": {"b"}, "b": set(), "c": {"d"}, "d": {"c"}}) == {frozenset({"c", "d"})}


def test_no_files_and_no_packages_import_each_other() -> None:
    packages = [(package, files(package)) for package in FORBIDDEN]
    sources = {module_of(path, p): text for p, texts in packages for path, text in texts.items()}
    edges = graph(sources)
    assert cycles(edges) == set()
    assert cycles(package_graph(edges)) == set()


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_file_imports_what_its_layer_must_not(package: str) -> None:
    sources = files(package)
    assert sources
    wrong = {name: imports(text) & FORBIDDEN[package] for name, text in sources.items()}
    assert {name: bad for name, bad in wrong.items() if bad} == {}


def test_the_backends_have_the_same_files() -> None:
    # Files that students write have their framework's name in theirs.
    torch = {name.replace("_torch", "_own") for name in files("dualml_torch")}
    ms = {name.replace("_ms", "_own") for name in files("dualml_ms")}
    single = {
        backend: {file for group in groups for file in group["files"]}
        for backend, groups in tomllib.loads(SINGLE_BACKEND.read_text("utf-8")).items()
    }
    assert {"dualml_torch": torch - ms, "dualml_ms": ms - torch} == single


#: Program that blocks the frameworks, then imports every module of the core and the backends'
#: framework-free packages.
BLOCKED = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("refused: " + name)

sys.meta_path.insert(0, Refuse())
import dualml
names = ["dualml"] + [m.name for m in pkgutil.walk_packages(dualml.__path__, "dualml.")]
names = [n for n in names if n != "dualml.__main__"]
for name in names + {light!r}:
    importlib.import_module(name)
loaded = {{n.partition(".")[0] for n in sys.modules}} & set({blocked!r})
assert not loaded, loaded
print(len(names))
"""


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_core_imports_with_both_frameworks_and_backends_refused() -> None:
    done = python(BLOCKED.format(blocked=sorted(FRAMEWORKS | BACKENDS), light=[]))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_what_the_parent_process_asks_of_a_backend_needs_no_framework() -> None:
    light = [
        *("dualml_torch", "dualml_torch.common.environ", "dualml_torch.doctor"),
        *("dualml_ms", "dualml_ms.common.environ", "dualml_ms.common.isa", "dualml_ms.doctor"),
    ]
    done = python(BLOCKED.format(blocked=sorted(FRAMEWORKS), light=light))
    assert done.returncode == 0, done.stderr


def test_the_refusal_refuses() -> None:
    done = python(BLOCKED.format(blocked=["json"], light=["json.tool"]))
    assert done.returncode != 0
    assert "refused: json" in done.stderr


@pytest.mark.parametrize("module", ["dualml.interface.cli", "dualml.interface.cli.app"])
def test_the_command_line_starts_without_anything_heavy(module: str) -> None:
    done = python(f"import {module}", "-X", "importtime")
    assert done.returncode == 0, done.stderr
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "dualml" in loaded
    assert loaded & {*HEAVY, *FRAMEWORKS, *BACKENDS} == set()
