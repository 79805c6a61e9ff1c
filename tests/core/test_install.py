"""A failed installation prints one line with the remedy."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / ".ci/install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "no space left"),
        ("ERROR: [Errno 13] Permission denied: '/v/lib'", "cannot write to /v"),
        ("WARNING: Retrying: ProxyError('Cannot connect', 407)", "the proxy refuses"),
        ("WARNING: Retrying: NewConnectionError('refused')", "does not answer"),
        ("error: command 'gcc' failed: No such file", "no compiler"),
        ("ERROR: No matching distribution found for torch>=9", "lacks a package: No matching"),
        ("ERROR: something nobody has seen", "ERROR: something nobody has seen"),
    ],
)
def test_a_failure_is_one_line_with_its_remedy(install: ModuleType, line: str, words: str) -> None:
    told = install.remedy(["Collecting torch", line], Path("/v"))
    assert words in told
    assert "\n" not in told


def test_an_index_that_does_not_answer_ends_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / ".ci/install.py"), "--target", str(tmp_path)]
    command += ["--index-url", "http://127.0.0.1:9/simple", "a-package-of-nobody"]
    env = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 2
    assert re.fullmatch(r"cannot install: the package index does not answer: .*\n", done.stderr)


def test_large_downloads_and_the_unpacking_are_said(install: ModuleType) -> None:
    text = io.StringIO()
    with redirect_stdout(text):
        progress = install.Progress()
        for line in (
            "Collecting torch==2.13.0",
            "  Downloading torch-2.13.0.whl (190.5 MB)",
            "  Downloading small-1.0.whl (12.0 MB)",
            "Installing collected packages: small, torch",
        ):
            progress.take(line)
        progress.over.set()
    said = [line.split("s  ")[1] for line in text.getvalue().splitlines()]
    assert said == ["torch-2.13.0.whl: 190.5 MB", "unpacking 2 packages"]
