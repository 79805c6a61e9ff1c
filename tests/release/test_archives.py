"""The wheel and the source archive hold what users need and nothing else, and the wheel works."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from archives import PYPROJECT, run, tracked, uv

PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel built from it, as in a release."""
    made = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", made)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="module")
def wheel(folder: Path) -> zipfile.ZipFile:
    [path] = folder.glob("dualml-*-py3-none-any.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def source(folder: Path) -> set[str]:
    [path] = folder.glob("dualml-*.tar.gz")
    with tarfile.open(path) as archive:
        return {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}


def test_the_wheel_has_every_module_and_resource_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    wanted = {name for package in PACKAGES for name in tracked(package)}
    wanted |= {f"dualml/_{name}" for name in tracked("experiments")}
    assert {
        "dualml/py.typed",
        "dualml/common/words/zh/help.toml",
        "dualml/_experiments/lab1.toml",
    } <= wanted
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == wanted
    # Data sets have their own licences and stay out, whatever they are called.
    assert max(info.file_size for info in wheel.infolist()) < 2_000_000


def test_the_source_archive_is_what_the_wheel_is_made_of(source: set[str]) -> None:
    folders = {name for name in source if "/" in name}
    assert folders == {name for f in (*PACKAGES, "experiments") for name in tracked(f)}
    assert source - folders == {
        "PKG-INFO",
        "LICENSE",
        "pyproject.toml",
        ".gitignore",
        "README.md",
        "README.zh.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "SECURITY.md",
    }


def test_a_wheel_of_the_checkout_is_the_one_of_the_source_archive(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    uv("build", "--wheel", "--out-dir", tmp_path)
    [path] = tmp_path.glob("*.whl")
    ours, theirs = (
        {info.filename: info.CRC for info in archive.infolist()}
        for archive in (zipfile.ZipFile(path), wheel)
    )
    assert ours == theirs


def test_the_metadata_is_complete(wheel: zipfile.ZipFile) -> None:
    [name] = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
    metadata = wheel.read(name).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Classifier: Typing :: Typed" in metadata
    for label in ("Documentation", "Source", "Issues", "Changelog"):
        assert f"Project-URL: {label}, https://" in metadata
    points = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "dualml = dualml.interface.cli:main" in points
    for backend in ("numpy", "torch", "mindspore"):
        assert re.search(rf"^{backend} = ", points, re.MULTILINE)
    [licence] = [n for n in wheel.namelist() if n.endswith("licenses/LICENSE")]
    assert "Version 2.0, January 2004" in wheel.read(licence).decode()


def test_the_checkers_of_archives_find_nothing(folder: Path) -> None:
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir())
    assert checked.returncode == 0, checked.stdout
    # Two files may be equal, and every package has its own folder at the top.
    command = ("check_wheel_contents", "--ignore", "W002,W009", *folder.glob("*.whl"))
    checked = run(sys.executable, "-m", *command)
    assert checked.returncode == 0, checked.stdout


def test_the_core_alone_runs(folder: Path, tmp_path: Path) -> None:
    """The core works alone, in an environment with only the wheel's requirements."""
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    uv("pip", "install", "--quiet", "--python", python, *folder.glob("*.whl"))
    dualml = tmp_path / "venv/bin/dualml"

    def call_dualml(*words: object) -> str:
        done = run(dualml, *words, cwd=tmp_path, DUALML_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    version = run("git", "grep", "-h", "^__version__", "--", "dualml/common/version.py").stdout
    assert call_dualml("--version").strip() in version.replace('__version__ = "', "dualml ")
    assert "lab1" in call_dualml("list")
    tiny = ("--quick", "--arm", "sgd", "--set", "arms.sgd.epochs=1", "--data", "digits")
    words = ("--backend", "numpy", "--no-report", "--out", "runs/x", "--json")
    [trial] = json.loads(call_dualml("run", "lab1", *tiny, *words))["trials"]
    assert trial["status"] == "ok"
