"""The hook for commit messages accepts the form that CONTRIBUTING asks for, and nothing else."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[2] / ".ci" / "commit_message.py"
SPEC = importlib.util.spec_from_file_location("commit_message", HOOK)
assert SPEC is not None
assert SPEC.loader is not None
HOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(HOOKS)

GOOD = (
    "optim: keep decay out of Adam's moments\n\nThe moments were those of the decayed gradient.\n"
)


def test_a_good_message() -> None:
    assert list(HOOKS.faults(GOOD)) == []
    assert list(HOOKS.faults("# a comment\n" + GOOD + "# another\n")) == []
    assert list(HOOKS.faults("Merge branch 'main' into x\n")) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (GOOD.replace("optim: keep", "optim: kept " + "x" * 60), "characters"),
        (GOOD.replace("optim: ", ""), "names no area"),
        (GOOD.replace("keep", "keeps"), "imperative"),
        (GOOD.replace("keep", "moved"), "imperative"),
        (GOOD.replace("keep", "keeping"), "imperative"),
        (GOOD.replace("\n\n", "\n"), "not empty"),
        ("optim: keep decay out\n", "no body"),
        ("", "names no area"),
    ],
)
def test_what_is_wrong_is_named(message: str, fault: str) -> None:
    assert any(fault in found for found in HOOKS.faults(message))


@pytest.mark.parametrize(("message", "code"), [(GOOD, 0), ("x\n", 1)])
def test_the_command(message: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message, "utf-8")
    done = subprocess.run(
        [sys.executable, str(HOOK), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert bool(done.stderr) == bool(code)
