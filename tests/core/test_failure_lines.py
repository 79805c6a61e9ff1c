"""A failed test is followed by where it failed and the command that runs it alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CODE = """
import pytest

def fail(value):
    assert value == 1

@pytest.mark.parametrize("value", [1, 2])
def test_value(value):
    fail(value)

@pytest.fixture
def broken():
    raise ValueError

def test_setup(broken):
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with this project's conftest.py and two tests that fail."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "tiers.py", "tiers.toml", "durations.toml"):
        shutil.copy(TESTS / name, tmp_path / "tests")
    (tmp_path / "tests/conformance").symlink_to(TESTS / "conformance")
    (tmp_path / "tests/test_it.py").write_text(CODE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run_tests(checkout: Path, *words: str, tox: str | None = None) -> list[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DUALML_", "PYTEST", "TOX_"))}
    env |= {"TOX_ENV_NAME": tox} if tox else {}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=checkout,
        env=env,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_line_says_how_to_run_the_test_under_tox(checkout: Path) -> None:
    lines = run_tests(checkout, "-n", "1", "tests/test_it.py", tox="core")
    alone = "to run it alone: tox run -e core --"
    assert f"tests/test_it.py:5: {alone} 'tests/test_it.py::test_value[2]'" in lines
    assert f"tests/test_it.py:13: {alone} tests/test_it.py::test_setup" in lines


def test_a_named_test_runs_alone_under_tox(checkout: Path) -> None:
    """The folders that tox.ini adds do not count beside a test's ID."""
    lines = run_tests(checkout, "tests/test_it.py::test_value[2]", "tests", tox="core")
    assert "1 failed in" in lines[-1]
    assert "passed" not in lines[-1]


def test_the_line_without_tox_names_the_python(checkout: Path) -> None:
    lines = run_tests(checkout, "--slow", "tests/test_it.py::test_setup")
    command = f"{sys.executable} -m pytest tests/test_it.py::test_setup --slow"
    assert f"tests/test_it.py:13: to run it alone: {command}" in lines
