"""The command line from the outside, with the reference as the only backend (no framework
needed)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from dualml.interface.schemas import schema_text

DOCS = Path(__file__).resolve().parents[2] / "docs"

TOML = """
name = "tiny"
model = "softmax"
title = { en = "Tiny", zh = "小" }
[data]
name = "digits"
train = 200
test = 50
[arms.gd]
optimizer = { name = "gd", lr = 0.1 }
batch_size = 0
updates = 12
[arms.sgd]
optimizer = { name = "sgd", lr = 0.05, momentum = 0.9 }
batch_size = 20
epochs = 2
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def resumed(out: Path) -> subprocess.CompletedProcess[str]:
    """Mark the first trial of a run folder as interrupted and run it again."""
    path = out / "run.json"
    manifest = json.loads(path.read_text())
    manifest["trials"][0]["status"] = "interrupted"
    path.write_text(json.dumps(manifest))
    return dualml("run", "--resume", out, "--no-report", "--json")


def dualml(
    *words: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a dualml command (see `forked`) and return its result; JSON output is checked against its
    schema."""
    with start(*words, cwd=cwd, env=env, stdout=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=120)
        except BaseException:
            process.kill()
            raise
    if "--json" in words and process.returncode in (0, 1, 3):
        check_schema(out)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def check_schema(out: str) -> str:
    """Check JSON against the schema that it names and return the schema's name ("" if it names
    none)."""
    from jsonschema import Draft202012Validator

    answer = strict(out)
    named = answer.get("schema", "") if isinstance(answer, dict) else ""
    if named:
        schema = json.loads(schema_text(named))
        assert schema["$id"] == named
        Draft202012Validator(schema).validate(answer)
    return str(named)


def start(
    *words: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdout: int = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Start a dualml command and return the running process."""
    return Forked(
        [sys.executable, "-m", "dualml", *map(str, words)],
        text=True,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd or tempfile.gettempdir(),  # not the checkout: what is installed is tested
        env={**os.environ, **(env or {})},
    )


def run(lab: object, out: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = dualml("run", lab, "--backend", "numpy", "--out", out, "--no-report", "--json", *words)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def goes_on_when_interrupted(lab: Path, folder: Path, arm: str, *words: str) -> None:
    """Assert that a run of ``arm`` that is killed after its first checkpoint and resumed equals one
    that was not."""
    whole, broken = folder / "whole", folder / "broken"
    place = f"trials/{arm}/numpy/seed0"
    asked = ["run", lab, "--backend", "numpy", "--arm", arm, *words, "--threads", "1"]
    asked += ["--no-report", "--out"]
    assert dualml(*asked, whole).returncode == 0
    process = start(*asked, broken, env={"DUALML_CHECKPOINT_S": "0"})
    deadline = time.monotonic() + 100
    while not (broken / place / "rank1.checkpoint.safetensors").exists():
        assert process.poll() is None, "it ended before there was a checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert dualml("run", "--resume", broken, "--no-report").returncode == 0
    name = f"{place}/weights.safetensors"
    assert (broken / name).read_bytes() == (whole / name).read_bytes()
    losses = [
        [json.loads(line)["value"] for line in (out / place / "rank0.jsonl").open()]
        for out in (whole, broken)
    ]
    assert losses[0] == losses[1]
    assert not list((broken / place).glob("*checkpoint*"))


def examples_are_printed(
    page: Path, fence: str, columns: int, capsys: pytest.CaptureFixture[str]
) -> int:
    """Run the ``dualml simulate`` examples in a page's ``fence`` blocks and return their number."""
    from dualml.interface.cli.app import app

    examples = re.findall(rf"{fence}\n\$ dualml (simulate .*)\n([^`]*)```", page.read_text("utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        for words, shown in examples:
            app(words.split(), standalone_mode=False)
            printed = capsys.readouterr().out.rstrip().splitlines()
            assert [line.rstrip() for line in printed] == shown.splitlines()
    return len(examples)
