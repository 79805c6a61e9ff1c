"""The launcher option ``--local-rank=N`` is dropped if it agrees with the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dualml.launch.local_rank import without_local_rank


@pytest.mark.parametrize("option", ["--local-rank=1", "--local_rank=1"])
def test_it_is_dropped_where_the_variable_agrees(option: str) -> None:
    assert without_local_rank([option, "run", option], {"LOCAL_RANK": "1"}) == ["run", option]


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--local-rank=1", "run"], {}),
        (["--local-rank=1", "run"], {"LOCAL_RANK": "0"}),
        (["run", "--local-rank=1"], {"LOCAL_RANK": "1"}),
        (["--local-rank=", "run"], {"LOCAL_RANK": ""}),
        ([], {"LOCAL_RANK": "1"}),
    ],
)
def test_anything_else_is_left(words: list[str], environ: dict[str, str]) -> None:
    assert without_local_rank(words, environ) == words


@pytest.mark.parametrize(("rank", "code"), [("0", 0), ("1", 2)])
def test_the_command_line_takes_it_from_a_launcher_alone(rank: str, code: int) -> None:
    words = [sys.executable, "-m", "dualml", "--local-rank=0", "--version"]
    done = subprocess.run(
        words,
        env={**os.environ, "LOCAL_RANK": rank},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
