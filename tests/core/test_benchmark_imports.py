"""Programs of `benchmarks/`, most of which no test runs: what they import exists."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "benchmarks").glob("*.py"))
#: Modules from elsewhere: libraries, and files that the programs write.
LIBRARIES = {
    *("deepspeed", "mindspore", "numpy", "psutil", "rich", "scipy", "torch", "transformers"),
    *("planted", "sizes"),
}
PACKAGES = ("dualml", "dualml_torch", "dualml_ms")


def find_module(name: str) -> Path | None:
    """Return the file of a module of this repository, as the programs import it; None for any
    other module."""
    if name.split(".")[0] in PACKAGES:
        path = ROOT.joinpath(*name.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path = ROOT / "benchmarks" / f"{name}.py"
    return path if path.exists() else None


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Return the names that a module defines or imports, in whatever block."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((one.asname or one.name).split(".")[0] for one in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def missing_imports(path: Path) -> Iterator[str]:
    """Yield what a program imports and what exists neither here nor in a library."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        top = node.module.split(".")[0]
        if top in sys.stdlib_module_names or top in LIBRARIES:
            continue
        file = find_module(node.module)
        if file is None or not file.exists():
            yield node.module
            continue
        for one in node.names:
            inside = find_module(f"{node.module}.{one.name}")
            if one.name not in defined_names(file) and not (inside and inside.exists()):
                yield f"{node.module}.{one.name}"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_program_imports_exists(path: Path) -> None:
    assert list(missing_imports(path)) == []


def test_missing_imports_are_found(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from timings import row\nfrom ratio_rows import make_row, no_row\n"
        "from dualml.common.machine import no_machine\nfrom dualml.nowhere import nothing\n"
        "from dualml.common import machine\nfrom numpy import random\n"
    )
    assert list(missing_imports(path)) == [
        "timings",
        "ratio_rows.no_row",
        "dualml.common.machine.no_machine",
        "dualml.nowhere",
    ]
