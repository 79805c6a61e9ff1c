"""A project's file of defaults may come from anybody: whatever it holds, a command continues or
ends with one line, writes nothing, and never waits."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import cases, entries, try_cases
from hypothesis import strategies as st
from mutations import ODD, TEXTS, document, mutated, mutated_bytes
from typer.main import get_command

from dualml.common.errors import UserError
from dualml.interface.cli.app import app
from dualml.interface.cli.defaults import command_options, leaf_commands, read_defaults
from dualml.interface.cli.output import complain
from dualml.interface.cli.project import ALLOWED

USUAL: dict[str, Any] = {
    "project": {"name": "x", "dependencies": ["dualml"]},
    "tool": {
        "ruff": {"line-length": 100},
        "dualml": {"lang": "zh", "threads": 2, "run": {"arm": ["gd"], "quick": True}},
    },
}
TABLE = '[tool.dualml]\nthreads = 3\n[tool.dualml.run]\narm = ["gd"]\n'
LONGEST_LINE = 3000


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder deep inside a project; the user has no file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DUALML_CONFIG", "")
    (tmp_path / "work/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work/deep")
    return tmp_path / "work"


@cases(150, 3000)
def test_whatever_a_project_says_ends_in_defaults_or_in_one_line(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    root = get_command(app)
    every = sorted(
        {
            (*path, name)
            for path, command in leaf_commands(root)
            for name in command_options(command)
        }
    )
    (tmp_path / "pyproject.toml").write_text("[tool.dualml]\nthreads = 1\n")

    def text(draw: Any) -> bytes:
        match draw(st.integers(0, 4)):
            case 0:
                return mutated_bytes(draw, TABLE.encode())
            case 1:
                return document(mutated(draw, USUAL)).encode(errors="replace")
            case 2:  # any option of any command
                *command, name = draw(st.sampled_from(every))
                value = draw(st.one_of(ODD, st.sampled_from(TEXTS), st.just("../../out")))
                inner: dict[str, Any] = {name: value}
                for word in reversed(command):
                    inner = {word: inner}
                return document({"tool": {"dualml": inner}}).encode(errors="replace")
            case 3:
                return b"dualml" + draw(st.binary(max_size=60))
        return TABLE.encode() * draw(st.sampled_from([1, 2, 20_000]))

    def put_file(draw: Any, path: Path) -> None:
        kind = draw(st.sampled_from(["file"] * 6 + ["pipe", "device", "loop", "folder", "link"]))
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to(draw(st.sampled_from(["/dev/zero", "/dev/full", "/dev/stdin"])))
            case "loop":
                path.symlink_to(path.name)
            case "folder":
                path.mkdir()
            case "link":
                path.symlink_to(draw(st.sampled_from(["/etc/passwd", "nowhere", "../x.toml"])))
            case "file":
                path.write_bytes(text(draw))
                path.chmod(draw(st.sampled_from([0o644, 0o644, 0o666, 0o664, 0o600])))

    def case(draw: Any) -> None:
        for path in (work / "pyproject.toml", work / "deep/pyproject.toml"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)
            put_file(draw, path)
        before = entries(tmp_path)
        try:
            found = read_defaults(root)
        except UserError as error:
            complain(str(error))
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert len(said) < LONGEST_LINE
        else:
            assert all("\n" not in line for line in found.notices)
            for file in found.files:
                assert file.path.stat().st_mode & 0o002 == 0
            for (_, name), place in found.entries.items():
                assert place.keys[-1].replace("_", "-") in ALLOWED, name
        assert entries(tmp_path) == before

    try_cases(count, case)
