"""`dualml run --resume`: nothing done twice, nothing lost, and no other folder mistaken for a
run."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command import TOML, dualml, lab, run, start, strict

from dualml.common.files import remove_file

pytestmark = pytest.mark.whole

__all__ = ["lab"]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the arm `gd`; tests take copies of it."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "tiny.toml").write_text(TOML)
    run(folder / "tiny.toml", folder / "o", "--arm", "gd")
    return folder / "o"


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished_run, tmp_path / "o"))


def test_interrupted_and_resumed_is_bit_identical(lab: Path, tmp_path: Path) -> None:
    """A run interrupted by Ctrl-C in the middle of a trial and resumed equals an uninterrupted
    one."""
    words = [
        "--set",
        "arms.sgd.updates=3000",
        "--set",
        "arms.sgd.samples=40",
        "--arm",
        "sgd",
        "--set",
        "evaluation.train_samples=1",
        "--set",
        "data.test=1",
    ]
    _, whole = run(lab, tmp_path / "whole", *words)
    out = tmp_path / "cut"
    process = start(
        "run",
        lab,
        "--backend",
        "numpy",
        "--out",
        out,
        "--no-report",
        *words,
        env={"DUALML_CHECKPOINT_S": "0.1"},
    )
    place = out / "trials" / "sgd" / "numpy" / "seed0"
    wait_for_checkpoint(place, process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"dualml run --resume {out}" in error
    assert strict((out / "run.json").read_text())["trials"][0]["status"] == "interrupted"
    done = dualml("run", "--resume", out, "--no-report")
    assert done.returncode == 0, done.stderr
    for name in ("weights.safetensors", "trace.safetensors"):
        a, b = (
            (tmp_path / where / "trials/sgd/numpy/seed0" / name).read_bytes()
            for where in ("whole", "cut")
        )
        assert a == b, name
    a, b = (records(tmp_path / where) for where in ("whole", "cut"))
    assert a == b
    again = strict((out / "run.json").read_text())
    assert again["trials"][0]["final_loss"] == whole["trials"][0]["final_loss"]


def wait_for_checkpoint(place: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not (place / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate(timeout=10)
        time.sleep(0.02)


def records(run_copy: Path) -> list[dict[str, Any]]:
    """Return all records without the seconds, which differ between runs."""
    lines = (run_copy / "trials/sgd/numpy/seed0/rank0.jsonl").read_text().splitlines()
    return [{k: v for k, v in strict(line).items() if k != "seconds"} for line in lines]


def test_finished_trials_are_not_run_again(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    run(lab, out)
    before = {p: p.stat().st_mtime_ns for p in out.glob("trials/**/*")}
    assert dualml("run", "--resume", out, "--no-report").returncode == 0
    assert {p: p.stat().st_mtime_ns for p in out.glob("trials/**/*")} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "newer dualml"),
        ({"plan_hash": "0" * 64}, "run.json's 000000000000"),
        ({"format": None}, "run.json: format: no version number"),
        ({"data": 3}, "run.json: data: "),
        ({"trials": None}, "run.json: trials: "),
    ],
)
def test_a_foreign_or_newer_folder_is_not_resumed(
    run_copy: Path, change: dict[str, Any], message: str
) -> None:
    told = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps({**told, **change}))
    done = dualml("run", "--resume", run_copy)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cpu"], "leave out --device"),
        (["--threads", "7"], "leave out --threads"),
        (["--seed", "1"], "leave out --seed"),
    ],
)
def test_a_run_goes_on_with_its_own_settings(
    run_copy: Path, words: list[str], message: str
) -> None:
    done = dualml("run", "--resume", run_copy, *words)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert message in done.stderr


def test_the_experiment_may_be_named_again_but_not_another(lab: Path, run_copy: Path) -> None:
    assert dualml("run", lab, "--resume", run_copy, "--no-report").returncode == 0
    done = dualml("run", "lab1", "--resume", run_copy)
    assert done.returncode == 2
    assert "is a run of tiny, not of lab1" in done.stderr


def test_the_report_keeps_its_language(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    words = ["--out", out, "--backend", "numpy", "--arm", "gd", "--lang", "zh"]
    assert dualml("run", lab, *words).returncode == 0
    assert dualml("run", "--resume", out).returncode == 0
    assert 'lang="zh' in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["weights.safetensors", "order.npz", "plan.json"])
@pytest.mark.parametrize("kept", [0, 100])
def test_a_plan_cut_short_is_one_line(run_copy: Path, name: str, kept: int) -> None:
    (run_copy / "plan" / name).write_bytes((run_copy / "plan" / name).read_bytes()[:kept])
    done = dualml("run", "--resume", run_copy)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert name in done.stderr


def interrupted(lab: Path, run_copy: Path) -> Path:
    """Interrupt a run of ``lab`` after a checkpoint and return the folder of its trial."""
    process = start(
        "run",
        lab,
        "--backend",
        "numpy",
        "--out",
        run_copy,
        "--no-report",
        "--arm",
        "sgd",
        "--set",
        "arms.sgd.updates=3000",
        "--set",
        "data.test=1",
        "--set",
        "evaluation.train_samples=1",
        env={"DUALML_CHECKPOINT_S": "0.1"},
    )
    place = run_copy / "trials" / "sgd" / "numpy" / "seed0"
    wait_for_checkpoint(place, process)
    busy = dualml("run", "--resume", run_copy, "--no-report")
    assert (busy.returncode, "in use by another" in busy.stderr) == (2, True), busy.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    return place


def test_what_fails_from_outside_keeps_the_checkpoint(lab: Path, tmp_path: Path) -> None:
    """Failures from outside keep the checkpoint: a busy folder takes no second run, missing data
    starts nothing, a time limit loses nothing."""
    out = tmp_path / "o"
    place = interrupted(lab, out)
    kept = (place / "checkpoint.safetensors").read_bytes()
    told = json.loads((out / "run.json").read_text())
    told["trials"][0].update(status="failed", reason="rank 0 was ended by SIGKILL")
    (out / "run.json").write_text(json.dumps(told))
    # A process of its own: what is interrupted here may still be importing.
    again = subprocess.Popen(
        [sys.executable, "-m", "dualml", "run", "--resume", out, "--no-report"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = place / "job.json"
    before = log.stat().st_mtime_ns
    deadline = time.monotonic() + 60
    while log.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=30)
    assert again.returncode == 130
    assert len((place / "checkpoint.safetensors").read_bytes()) >= len(kept)


def test_a_damaged_checkpoint_begins_again(lab: Path, tmp_path: Path) -> None:
    place = interrupted(lab, tmp_path / "o")
    (place / "checkpoint.safetensors").write_bytes(b"nothing")
    done = dualml("run", "--resume", tmp_path / "o", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "not a readable checkpoint" in (place / "rank0.log").read_text()
    steps = [r["step"] for r in records(tmp_path / "o") if r["metric"] == "loss"]
    assert steps == list(range(1, 6001))


@pytest.mark.parametrize(
    "damage",
    [
        ("run.json", b"\xff\xfe"),
        ("run.json", b'{"format": 1}'),
        ("plan/plan.json", b"{}"),
        ("trials/gd/numpy/seed0/weights.safetensors", b"x"),
        ("trials/gd/numpy/seed0/trace.safetensors", b"x"),
        ("trials/gd/numpy/seed0/result.json", b"{}"),
        ("trials/gd/numpy/seed0/rank0.jsonl", b"\xff\xfe{"),
    ],
)
@pytest.mark.parametrize("command", [["parity"], ["run", "--resume"]], ids=lambda c: c[0])
def test_a_damaged_run_folder_is_one_line(
    run_copy: Path, damage: tuple[str, bytes], command: list[str]
) -> None:
    (run_copy / damage[0]).write_bytes(damage[1])
    done = dualml(*command, run_copy)
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode:
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    else:
        assert "rank0.jsonl" in damage[0], "only a line of the records may be lost"


def test_what_a_killed_process_left_of_a_file_goes_with_it(tmp_path: Path) -> None:
    for name in ("a.txt", ".a.txt.4711", "b.txt", ".b.txt.4711"):
        (tmp_path / name).write_text("x")
    remove_file(tmp_path / "a.txt")
    remove_file(tmp_path / "c.txt")
    assert {path.name for path in tmp_path.iterdir()} == {"b.txt", ".b.txt.4711"}
