"""The GitHub action: its parts fit together, and its steps do what they claim."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "loss-guard" / "action.yml"
TOML = """
name = "guard"
model = "softmax"
title = { en = "Guard", zh = "守卫" }
[data]
name = "digits"
train = 64
test = 32
[parity]
draws = 2
horizon = 3
share = 0
trace = [1, 3]
[arms.gd]
optimizer = { name = "gd", lr = 0.1 }
batch_size = 0
updates = 3
"""
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


def action() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(ACTION.read_text("utf-8"))
    return content


def steps() -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in action()["runs"]["steps"]}


def test_every_input_is_used_and_every_name_is_known() -> None:
    content = action()
    text = ACTION.read_text("utf-8").partition("\nruns:")[2]
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(content["inputs"])
    ids = {step["id"] for step in content["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.", ACTION.read_text("utf-8"))) <= ids
    for step in content["runs"]["steps"]:
        assert ("run" in step) == (step.get("shell") == "bash")
        # What a user writes reaches the shell as a variable: it is never part of the script.
        assert not EXPRESSION.search(step.get("run", ""))
        assert "uses" not in step or re.fullmatch(r"actions/[\w/-]+@v\d+", step["uses"])
    for name in ("verdict", "report"):
        assert f'echo "{name}=' in steps()["Compare"]["run"]


@dataclass
class Runner:
    """The environment of a GitHub step: variables, files, and values of expressions."""

    temp: Path
    inputs: dict[str, str]

    def value(self, expression: str) -> str:
        known = {f"inputs.{name}": value for name, value in self.inputs.items()}
        return {**known, "runner.temp": str(self.temp)}[expression]

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        step = steps()[name]
        env = {
            key: EXPRESSION.sub(lambda m: self.value(m[1]), str(value))
            for key, value in step["env"].items()
        }
        for file in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            env[file] = str(self.temp / file)
        path = f"{self.temp / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**os.environ, **env, "PATH": path},
            cwd=self.temp,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def output_of(self, file: str) -> str:
        path = self.temp / file
        return path.read_text("utf-8") if path.exists() else ""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    (tmp_path / "guard.toml").write_text(TOML)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"  # no link: an environment knows itself by its place
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    inputs = {name: str(one.get("default", "")) for name, one in action()["inputs"].items()}
    return Runner(tmp_path, {**inputs, "experiment": "guard.toml", "backend": "numpy"})


def test_the_first_run_is_kept_and_the_next_is_held_against_it(runner: Runner) -> None:
    assert (done := runner.run("Run")).returncode == 0, done.stderr
    assert runner.run("Compare").returncode == 0
    assert runner.output_of("GITHUB_OUTPUT") == "verdict=none\n"
    assert "No run to compare with yet" in runner.output_of("GITHUB_STEP_SUMMARY")
    assert (done := runner.run("Keep this run")).returncode == 0, done.stderr
    guard = runner.temp / "loss-guard"
    assert (guard / "base" / "baseline.json").exists()

    (guard / "run").rename(guard / "first")
    runner.inputs |= {"options": "--set arms.gd.optimizer.lr=0.11", "lang": "zh", "slower": "1000"}
    assert (done := runner.run("Run")).returncode == 0, done.stderr
    done = runner.run("Compare")
    assert done.returncode == 3, done.stderr
    report = guard / "report.html"
    outputs = runner.output_of("GITHUB_OUTPUT").splitlines()
    assert outputs == ["verdict=none", "verdict=different", f"report={report}"]
    assert "不同：B 的训练与 A 不同。" in runner.output_of("GITHUB_STEP_SUMMARY")
    assert "<svg" in report.read_text("utf-8")
    assert json.loads((guard / "verdict.json").read_text())["limits"] == {"slower": 1000.0}

    runner.inputs["baseline"] = "nowhere"
    done = runner.run("Compare")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_inputs_of_several_lines_are_taken_whole(runner: Runner) -> None:
    (runner.temp / "bin" / "python").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    runner.inputs |= {"install": "dualml[torch]\n\n./mine\n", "options": "--quick\n--arm gd\n"}
    assert runner.run("Install").stdout == "<-m><pip><install><dualml[torch]><./mine>"
    assert runner.run("Run").stdout.endswith("<--no-find><--quick><--arm><gd>")
    runner.inputs["options"] = ""
    assert runner.run("Run").stdout.endswith("<--no-find>")


def test_a_run_that_fails_fails_the_step(runner: Runner) -> None:
    runner.inputs["options"] = "--set arms.gd.optimizer.lr=x; touch owned"
    done = runner.run("Run")
    assert done.returncode == 2
    assert not (runner.temp / "owned").exists()
