"""Helpers of the release tests: the checkout, and commands with pip's settings for uv."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def loaded(path: str) -> ModuleType:
    """Load a script of the checkout that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_script", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def surroundings() -> dict[str, str]:
    """Return this environment without the checkout's paths, with pip's indexes for uv."""
    kept = {key: text for key, text in os.environ.items() if key not in ("PYTHONPATH", "MAKEFLAGS")}
    return kept | loaded(".ci/tox.py").uv_settings()


def run(*words: object, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        text=True,
        capture_output=True,
        check=False,
        timeout=240,
        env=surroundings() | env,
    )


def uv(*words: object, **env: str) -> str:
    """Run uv, which must succeed, and return its output."""
    done = run(sys.executable, "-m", "uv", *words, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def tracked(folder: str) -> set[str]:
    """Return the tracked files below a folder, relative to the checkout's root, without generated
    ones."""
    listed = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder
    )
    assert listed.returncode == 0, listed.stderr
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def bound(extra: str, name: str) -> str:
    """Return the version range of a package in an extra of pyproject.toml, without its marker."""
    for line in PYPROJECT["project"]["optional-dependencies"][extra]:
        if found := re.match(rf"{name}(?![\w-])([^;]*)", line):
            return found[1]
    raise AssertionError(f"{name} is not in the extra {extra}")
