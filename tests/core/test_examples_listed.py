"""The contents of examples/ are listed in both languages, are short, and state what they show."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
FOLDERS = sorted(
    path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"
)
#: Folder → the file that tests its contents.
TESTED = {
    "notebooks": "tests/notebooks/test_notebooks.py",
    "port_under_test": "tests/notebooks/test_port_example.py",
    "third_backend": "tests/notebooks/test_jax_backend.py",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_says_what_it_shows(script: Path) -> None:
    text = script.read_text("utf-8")
    assert len(text.splitlines()) < 120
    assert f"python examples/{script.name}" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_all_of_it_is_listed(page: str) -> None:
    """Every example is listed with what it shows, what it needs, and how long it takes."""
    text = (EXAMPLES / page).read_text("utf-8")
    rows = re.findall(r"^\| \[`[^`]+`\]\(([^)]+)\)(?: \| [^|]+){3} \|$", text, re.M)
    assert sorted(rows) == sorted(path.name for path in [*SCRIPTS, *FOLDERS])


def test_every_folder_has_its_test() -> None:
    assert {path.name for path in FOLDERS} == set(TESTED)
    for name, file in TESTED.items():
        assert name in (ROOT / file).read_text("utf-8")
