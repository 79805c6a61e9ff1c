"""The wheel holds what users need and nothing else; its requirements resolve together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dualml.doctor.finding import within

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

pytestmark = pytest.mark.system


def pip(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    done = pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("dualml-*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    return zipfile.ZipFile(path)


def tracked(folder: str, *suffixes: str) -> set[str]:
    """Files of the checkout that belong in the wheel."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts
    }


def test_every_module_and_every_resource_is_in(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for package in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        wanted = tracked(package, ".py", ".toml", ".j2", ".css", ".typed", ".js", ".md")
        assert wanted
        assert wanted - names == set()
    assert "dualml/py.typed" in names


def test_the_experiments_are_in(wheel: zipfile.ZipFile) -> None:
    wanted = tracked("experiments", ".toml")
    assert "experiments/lab1.toml" in wanted
    names = set(wheel.namelist())
    assert {f"dualml/_{name}" for name in wanted} - names == set()


def test_nothing_else_is_in(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {
        "dualml",
        "dualml_torch",
        "dualml_ms",
    }
    parts = {part for name in wheel.namelist() for part in name.split("/")}
    assert not parts & {"tests", "conftest.py", "__pycache__", "runs", "benchmarks"}
    # Data sets have their own licences and stay out, whatever they are called.
    assert max(info.file_size for info in wheel.infolist()) < 2_000_000


def test_the_metadata_is_complete(wheel: zipfile.ZipFile) -> None:
    [name] = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
    metadata = wheel.read(name).decode()
    assert "License-Expression: Apache-2.0" in metadata
    points = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "dualml = dualml.cli:main" in points
    for backend in ("numpy", "torch", "mindspore"):
        assert re.search(rf"^{backend} = ", points, re.MULTILINE)
    [licence] = [n for n in wheel.namelist() if n.endswith("licenses/LICENSE")]
    assert "Version 2.0, January 2004" in wheel.read(licence).decode()


def declared(extra: str, name: str) -> str:
    """The range pyproject.toml gives a package in an extra."""
    for line in PYPROJECT["project"]["optional-dependencies"][extra]:
        if found := re.match(rf"{name}(?![\w-])(.*)", line):
            return found[1]
    raise AssertionError(f"{name} is not in the extra {extra}")


def test_both_frameworks_resolve_together() -> None:
    """What pip would install into an empty environment."""
    done = pip("install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", ".[all]")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    found = {r["metadata"]["name"].lower(): r["metadata"]["version"] for r in report["install"]}
    assert within(found["torch"], declared("torch", "torch"))
    assert within(found["mindspore"], declared("mindspore", "mindspore"))
    assert within(found["numpy"], "<2")
    if found["torch"].endswith("+cpu"):
        # Without CUDA's own libraries; the one that tells what a GPU uses is small and for all.
        cuda = {name for name in found if name.startswith("nvidia-")} - {"nvidia-ml-py"}
        assert cuda == set()


def test_the_checkers_have_one_version_everywhere() -> None:
    """pyproject's extra `dev`, tox and pre-commit."""
    dev = {
        name: version
        for name, _, version in (
            line.partition("==") for line in PYPROJECT["project"]["optional-dependencies"]["dev"]
        )
        if version
    }
    assert set(dev) == {"ruff", "mypy"}
    for file in ("tox.ini", ".pre-commit-config.yaml"):
        text = (ROOT / file).read_text("utf-8")
        pinned = re.findall(r"\b(ruff|mypy)==([\d.]+)", text)
        assert set(pinned) == set(dev.items()), file


def make(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("MAKE")}, **env},
    )


def test_make_lists_its_targets() -> None:
    told = make().stdout
    for target in ("lab1", "test", "test-all", "test-fast", "lint", "types", "bench", "clean"):
        assert re.search(rf"make {target}\s+\w", told), told


def test_make_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    """A stand-in that fails every question but its version."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.10"\nexit 1\n')
    old.chmod(0o755)
    for settings in ([f"PYTHON={old}"], ["PYTHON="]):
        refused = make("lab1", f"VENV={tmp_path / 'venv'}", *settings)
        assert refused.returncode == 2
        assert "needs Python 3.11 or 3.12" in refused.stderr
        assert not (tmp_path / "venv").exists()
    assert "3.8.10" in make("lab1", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}").stderr
