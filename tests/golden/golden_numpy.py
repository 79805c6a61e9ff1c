"""Rerun small runs of every lab with the NumPy backend and compare them with their records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from golden_files import (
    HERE,
    archive_sha256,
    arguments,
    columns,
    differences,
    labs,
    machine,
    normalised,
    read_json,
    sha256,
    summary,
)

FOLDER = HERE / "numpy"


def dualml(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line with fixed data and language settings."""
    env = {k: v for k, v in os.environ.items() if k not in ("DUALML_DATA", "DUALML_LANG")}
    return subprocess.run(
        [sys.executable, "-m", "dualml", *map(str, words)],
        capture_output=True,
        text=True,
        env=env | {"COLUMNS": "160"},
        check=False,
    )


def run(name: str, out: Path) -> dict[str, Any]:
    """Run a lab into ``out`` and return its record."""
    words = ["run", *arguments(labs("numpy")[name]), "--backend", "numpy", "--threads", "1"]
    done = dualml(*words, "--no-report", "--json", "--out", out)
    assert done.stdout.startswith("{"), done.stderr[-2000:]
    ended = {"command": " ".join(words), "exit_code": done.returncode}
    return {**ended, "summary": list(json.loads(done.stdout)), **read(out)}


def read(out: Path) -> dict[str, Any]:
    """Return the contents of a run folder to compare; ``bytes`` is compared on this machine
    only."""
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    files.remove(".lock")
    run, parity, plan = (read_json(out / f) for f in ("run.json", "parity.json", "plan/plan.json"))
    trials = {}
    for trial in run["trials"]:
        place = f"trials/{trial['arm']}/{trial['backend']}/seed{trial['seed']}"
        if trial["status"] == "ok":
            trials[place] = read_trial(out / place)
    return {
        "files": files,
        "plan": {
            "hash": plan["hash"],
            "plan.json": sha256((out / "plan/plan.json").read_bytes()),
            "weights.safetensors": sha256((out / "plan/weights.safetensors").read_bytes()),
            "order.npz": archive_sha256(out / "plan/order.npz"),
        },
        "run": normalised({k: v for k, v in run.items() if k != "experiment"}),
        "experiment": sha256(json.dumps(run["experiment"]).encode()),
        "verdicts": verdicts(parity),
        "trials": trials,
        "bytes": {
            "machine": machine(),
            "parity.json": sha256((out / "parity.json").read_bytes()),
            **{
                name: sha256((out / name).read_bytes())
                for name in files
                if name.startswith("trials/") and name.endswith(".safetensors")
            },
        },
    }


def read_trial(folder: Path) -> dict[str, Any]:
    result = read_json(folder / "result.json")
    return {
        "job": normalised(read_json(folder / "job.json")),
        "result": {
            "keys": list(result),
            **{k: result[k] for k in ("data", "apart") if k in result},
        },
        "records": {path.stem: columns(path) for path in sorted(folder.glob("rank*[0-9].jsonl"))},
        "weights": summary(folder / "weights.safetensors"),
        "trace": summary(folder / "trace.safetensors"),
    }


def verdicts(parity: dict[str, Any]) -> list[str]:
    """Return one line for each comparison, without numbers that rounding affects."""
    found = [
        f"{c['arm']} seed{c['seed']} {c['a']}–{c['b']}: {c['verdict']} ({c['reason']})"
        for c in parity["comparisons"]
    ]
    found += [
        f"{c['arm']} seed{c['seed']} {c['backend']} against {c['against']}: "
        f"{c['verdict']} ({c['reason']})"
        for c in parity.get("serial", [])
    ]
    return found


def compare(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what has changed. On the recording machine bytes are compared; elsewhere trained
    numbers may differ by rounding, but not plans, verdicts, files and keys."""
    here = was["bytes"]["machine"] == now["bytes"]["machine"]
    if here:
        return differences(was, now)
    return differences(*(without_bytes(record) for record in (was, now)), close=True)


def without_bytes(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without digests of trained numbers, whose last bits depend on the machine."""
    trials = [
        {**trial, "agreement": without_digests(trial["agreement"])}
        if "agreement" in trial
        else trial
        for trial in record["run"]["trials"]
    ]
    kept = {key: value for key, value in record.items() if key != "bytes"}
    return {**kept, "run": {**record["run"], "trials": trials}}


def without_digests(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_digests(v) for k, v in value.items() if k != "sha256"}
    return [without_digests(v) for v in value] if isinstance(value, list) else value
