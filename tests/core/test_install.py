"""A failed installation prints one line with the remedy."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import tomllib
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
            "Resolved 90 packages in 4.02s\n",
            "Downloading mindspore (312.9MiB)",
        ):
            progress.take(line)
        progress.over.set()
    said = [line.split("s  ")[1] for line in text.getvalue().splitlines()]
    assert said == [
        "torch-2.13.0.whl: 190.5 MB",
        "unpacking 2 packages",
        "Resolved 90 packages in 4.02s",
        "mindspore: 312.9 MB",
    ]


def test_uv_installs_where_it_is_there_and_pip_where_it_fails(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[str]]()

    def run(command: list[str], progress: object, env: dict[str, str]) -> tuple[int, list[str]]:
        asked.append(command)
        return int(command[0].endswith("uv") and "torch" in command), ["Collecting torch"]

    monkeypatch.setattr(install, "run_installer", run)
    monkeypatch.setattr(install.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(install.runpy, "run_path", lambda _: {"uv_settings": dict})
    install.install(["numpy"], None)
    (tmp_path / "uv").write_text("")
    assert install.install(["numpy"], None) == (0, [])
    assert install.install(["torch"], None) == (0, ["Collecting torch"])
    assert [Path(command[0]).name for command in asked] == ["python", "uv", "uv", "python"]


@pytest.mark.parametrize("page", ["install.md", "install.zh.md"])
def test_the_page_lists_the_dependencies(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split("[^a-z0-9-]", line)[0] for line in project["dependencies"]]
    table = (ROOT / "docs" / page).read_text("utf-8").split("\n## ")[1]
    listed = re.findall(r"^\| ([a-z][a-z0-9-]+) \|", table, re.M)
    assert [name for name in listed if name != "package"] == names
