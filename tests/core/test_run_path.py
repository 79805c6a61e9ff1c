"""The way from ``dualml run`` to the first update stays short: calls and files, by tracing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Most calls from the command's function to the first update, in both processes together.
MOST_CALLS = 8
#: Read by every process at its start: write the stack where a process starts a rank, and where a
#: rank makes its first update.
PLANTED = """
import json, os, sys, traceback

def trace(kind, name):
    original, path = getattr(kind, name), os.environ["STACKS"]

    def traced(self, *args, **more):
        file = os.path.join(path, f"{name}.json")
        if not os.path.exists(file):
            frames = traceback.extract_stack()[:-1]
            code = original.__code__
            stack = [[frame.filename, frame.name] for frame in frames]
            with open(file + ".new", "w") as out:
                json.dump([*stack, [code.co_filename, code.co_name]], out)
            os.rename(file + ".new", file)
        return original(self, *args, **more)

    setattr(kind, name, traced)

if any(word.endswith("dualml/__main__.py") or word == "dualml" for word in sys.orig_argv):
    from dualml.launch.process import Launch
    trace(Launch, "start")
if "dualml.runner.worker.main" in sys.orig_argv:
    from dualml.backend.training import Training
    trace(Training, "run_steps")
"""


def calls_after(stack: list[list[str]], file: str, name: str) -> list[tuple[str, str]]:
    """Return file and function of each call in the core after ``name`` of ``file``."""
    root = str(Path(__file__).resolve().parents[2] / "dualml") + os.sep
    own = [(path.removeprefix(root), call) for path, call in stack if path.startswith(root)]
    return own[own.index((file, name)) + 1 :]


def test_the_first_update_is_at_most_eight_calls_from_the_command(
    tmp_path: Path, record_property: Any
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(PLANTED)
    env = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]),
        "STACKS": str(tmp_path),
        "DUALML_FORK": "0",  # each rank reads the file of its own start
    }
    out, stacks = tmp_path / "run", [tmp_path / "start.json", tmp_path / "run_steps.json"]
    words = ["run", "lab1", "--backend", "numpy", "--quick", "--no-report", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dualml", *words],
        cwd=tmp_path,
        env={**os.environ, **env},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 100
        while not all(path.exists() for path in stacks):
            assert process.poll() is None, "the command ended before the first update"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
    started, updated = (json.loads(path.read_text()) for path in stacks)
    parent = calls_after(started, "interface/cli/run.py", "run")
    rank = calls_after(updated, "runner/worker/main.py", "main")
    files = {file for file, _ in (*parent, *rank)} | {"interface/cli/run.py"}
    print(f"{len(parent)} + {len(rank)} calls, {len(files)} files", parent, rank, sep="\n")
    record_property("calls", len(parent) + len(rank))
    assert len(parent) + len(rank) <= MOST_CALLS, (parent, rank)
