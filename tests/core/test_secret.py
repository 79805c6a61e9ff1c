"""The secret of a class: its sources, and the places where it must not appear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dualml.common.errors import UserError
from dualml.course.grading import secret as secrets
from dualml.course.grading.grade import GradingRequest
from dualml.course.grading.rubric import Rubric
from dualml.course.grading.secret import VARIABLE, masked_text, read_secret
from dualml.course.labs import load_lab

WORD = "hidden-word"


def nobody() -> str:
    raise AssertionError("nobody is asked")


@pytest.fixture
def plain(clean_environ: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No environment variable and no terminal."""
    clean_environ.setattr(secrets, "hide_secret", lambda: None)  # of the tests' own process
    clean_environ.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    return clean_environ


def test_it_comes_from_the_first_place_that_has_it(
    plain: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, warned = tmp_path / "secret", list[tuple[str, str]]()
    path.write_text("of a file\n")
    path.chmod(0o600)

    def warn(kind: str, what: str) -> None:
        warned.append((kind, what))

    assert read_secret(None, path, nobody, warn) == "of a file"
    assert warned == []
    path.chmod(0o644)
    plain.setenv(VARIABLE, "of a variable")
    assert read_secret(None, path, nobody, warn) == "of a file"
    assert VARIABLE not in os.environ
    assert warned == [("open", str(path))]
    plain.setenv(VARIABLE, "of a variable")
    assert read_secret(None, None, nobody, warn) == "of a variable"
    assert VARIABLE not in os.environ
    assert read_secret(WORD, None, nobody, warn) == WORD
    assert warned[1:] == [("seen", "")]


def test_it_is_asked_for_on_a_terminal_only(plain: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    with pytest.raises(UserError, match="--secret-file PATH, or set DUALML_SECRET"):
        read_secret(None, None, nobody)
    plain.setattr("sys.stdin", Terminal())
    plain.setattr("sys.stderr", Terminal())
    assert read_secret(None, None, lambda: WORD) == WORD


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe", "UTF-8"),
        (b"a\nb\n", "one line"),
        (b"a\x1b", "one line"),
        (b"x" * 70_000, "at most"),
        (None, "No such file"),
    ],
)
def test_files_that_hold_none(
    content: bytes | None, why: str, plain: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_secret(None, path, nobody)
    with pytest.raises(UserError, match="once"):
        read_secret(WORD, path, nobody)
    with pytest.raises(UserError, match="one line"):
        read_secret("\udcff", None, nobody)


def test_a_pipe_holds_none(plain: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="a pipe"):
        read_secret(None, tmp_path / "pipe", nobody)


def test_it_is_in_no_traceback(tmp_path: Path) -> None:
    request = GradingRequest(load_lab("lab1"), [], WORD, Rubric(), "en", tmp_path)
    assert WORD not in repr(request)
    assert WORD not in request.fingerprint


def test_only_the_secret_is_hidden() -> None:
    assert masked_text(b"--secret", b"ab") == b"**"
    assert masked_text(b"", b"--secret=abc") == b"***"
    assert masked_text(b"x", b"DUALML_SECRET=a") == b"*"
    for text in (b"--secret", b"--secret-file=a", b"PATH=a", b"ab", b""):
        assert masked_text(b"--secret-file", text) == b""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("words", [["--secret", WORD], [f"--secret={WORD}"], []])
def test_other_processes_do_not_see_it(words: list[str]) -> None:
    code = (
        "import os, pathlib, subprocess, sys\n"
        "from dualml.course.grading.secret import read_secret\n"
        "given = sys.argv[-1].removeprefix('--secret=') if len(sys.argv) > 1 else None\n"
        "assert len(read_secret(given, None, input)) == 11\n"
        "for name in ('cmdline', 'environ'):\n"
        "    sys.stdout.buffer.write(pathlib.Path(f'/proc/self/{name}').read_bytes())\n"
        "sys.stdout.flush()\n"
        "subprocess.run(['env'], check=True)\n"
        "print(os.environ['OTHER'])"
    )
    env = {**os.environ, "OTHER": f"another {WORD[:5]}", VARIABLE: WORD}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=env, capture_output=True, timeout=120, check=True
    )
    assert WORD.encode() not in done.stdout
    assert f"another {WORD[:5]}\n".encode() in done.stdout
    assert done.stdout.count(f"another {WORD[:5]}".encode()) == 3
