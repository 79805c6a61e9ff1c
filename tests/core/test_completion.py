"""Shell completions, requested as the shell's own script does; computing them imports nothing
heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import dualml
from test_layering import HEAVY

SHELLS = ("bash", "zsh", "fish")


def completions(line: str, cwd: Path | None = None, **env: str) -> list[str]:
    """Return the completions that bash receives for the last word of a line."""
    words = line.split(" ")
    env |= {"_DUALML_COMPLETE": "complete_bash", "COMP_WORDS": line}
    done = dualml(cwd=cwd, env={**env, "COMP_CWORD": str(len(words) - 1)})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("dualml par", {"parity", "partition"}),
        ("dualml data v", {"verify"}),
        ("dualml run --th", {"--threads"}),
        ("dualml run la", {"lab1", "lab4"}),
        ("dualml submit la", {"lab1"}),
        ("dualml run lab1 --arm a", {"adam", "all"}),
        ("dualml run lab1 --backend n", {"numpy"}),
        ("dualml run -b b", {"both"}),
        ("dualml run lab1 --lang ", {"en", "zh"}),
        ("dualml diffs ge", {"gelu"}),
        ("dualml diffs --topic l", {"layers", "losses"}),
        ("dualml partition dir", {"dirichlet_labels"}),
        ("dualml simulate --strategy ri", {"ring"}),
        ("dualml data get m", {"mnist"}),
        ("dualml plan gpt3-17", {"gpt3-175b"}),
        ("dualml new m", {"memory", "methods"}),
        ("dualml run lab1 --device c", {"cuda", "cpu"}),
    ],
)
def test_names_are_completed(line: str, among: set[str]) -> None:
    words = completions(line)
    assert among <= set(words)
    assert all(word.startswith(line.split(" ")[-1]) for word in words)


def test_runs_and_jobs_are_completed(tmp_path: Path) -> None:
    (tmp_path / "runs/lab1-x").mkdir(parents=True)
    (tmp_path / "runs/lab1-x/run.json").write_text('{"trials": [{"arm": "sgd"}, {"arm": "adam"}]}')
    (tmp_path / "jobs/12").mkdir(parents=True)
    (tmp_path / "jobs/12/state.json").write_text("{}")
    assert completions("dualml parity ", tmp_path) == ["runs/lab1-x"]
    assert completions("dualml find runs/lab1-x --arm s", tmp_path) == ["sgd"]
    assert completions("dualml logs ", tmp_path, DUALML_JOBS=str(tmp_path / "jobs")) == ["12"]
    both = completions("dualml top ", tmp_path, DUALML_JOBS=str(tmp_path / "jobs"))
    assert both == ["12", "runs/lab1-x"]


def test_no_mistake_of_the_user_disturbs_a_line_that_is_being_typed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dualml]\nnothing = 1\n")
    env = {"DUALML_CONFIG": "", "DUALML_BAKEND": "x"}
    assert completions("dualml run nothing --arm ", tmp_path, **env) == []
    assert completions("dualml find nowhere --arm ", tmp_path, **env) == []
    assert "lab1" in completions("dualml run la", tmp_path, **env)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(shell: str, tmp_path: Path) -> None:
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    code = "from dualml.interface.cli import main; main()"
    words = [sys.executable, "-c", code, "--show-completion", shell]
    done = subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f"complete_{shell}" in done.stdout
    words[3] = "--install-completion"
    done = subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert any("_DUALML_COMPLETE" in path.read_text() for path in tmp_path.rglob("*dualml*"))


def test_help_in_the_language_of_the_reader() -> None:
    env = {"_DUALML_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = dualml(env={**env, "_TYPER_COMPLETE_ARGS": "dualml che", "DUALML_LANG": "zh"})
    name, text = next(line.split("\t") for line in done.stdout.splitlines())
    assert name == "check"
    assert any("\u4e00" <= letter <= "\u9fff" for letter in text)


def test_an_answer_waits_for_nothing_heavy() -> None:
    env = {
        "_DUALML_COMPLETE": "complete_bash",
        "COMP_WORDS": "dualml run lab1 --arm ",
        "COMP_CWORD": "4",
    }
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dualml"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "adam" in done.stdout
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "dualml" in loaded
    assert loaded & set(HEAVY) == set()
