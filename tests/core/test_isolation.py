"""Files in the current folder are not imported, neither by the command nor by its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import TOML

ROOT = Path(__file__).resolve().parents[2]
#: Modules that a worker, the command or their libraries import; users' files have these names.
NAMES = (
    *(
        "abc",
        "json",
        "random",
        "signal",
        "queue",
        "statistics",
        "string",
        "token",
        "typing",
        "copy",
    ),
    *("csv", "code", "test", "models", "numpy", "typer", "rich", "pydantic", "psutil", "scipy"),
    *("torch", "mindspore", "dualml_torch", "dualml_ms"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a current folder with a module of each name that raises when it is imported."""
    (tmp_path / "tiny.toml").write_text(TOML)
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the wrong {name}')\n")
    return tmp_path


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run dualml as a real process, not forked: the imports are the point of the test."""
    return subprocess.run(
        [sys.executable, "-m", "dualml", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environ},
    )


@pytest.mark.whole
@pytest.mark.parametrize("fork", ["0", "1"])
def test_files_in_the_current_folder_are_not_imported(folder: Path, fork: str) -> None:
    words = ("run", "tiny.toml", "--backend", "numpy", "--arm", "sgd", "--out", "out")
    done = run(folder, *words, DUALML_FORK=fork)
    assert done.returncode == 0, done.stderr
    assert "the wrong" not in (folder / "out/trials/sgd/numpy/seed0/rank0.log").read_text()
    assert run(folder, "capabilities", "--backend", "numpy").returncode == 0


def test_a_checkout_that_is_not_installed_finds_itself(tmp_path: Path) -> None:
    """A checkout that is not installed works when it is the current folder."""
    for name in ("dualml", "dualml_torch", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "random.py").write_text("raise RuntimeError('the wrong random')\n")
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "dualml", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env=without,
    )
    assert done.returncode == 0, done.stderr
    assert "lab1" in done.stdout


def test_a_worker_imports_what_lies_beside_a_users_file(tmp_path: Path) -> None:
    from dualml.parity.models.model_ref import parse_import_spec

    (tmp_path / "beside_it.py").write_text("NUMBER = 3\n")
    (tmp_path / "net.py").write_text("from beside_it import NUMBER\ndef Net(): return NUMBER\n")
    job = parse_import_spec(f"{tmp_path / 'net.py'}:Net", "torch_module")
    code = (
        "import sys; from dualml.parity.models.model_ref import load_builder; "
        f"print(load_builder({job})())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert done.stdout == "3\n", done.stderr
