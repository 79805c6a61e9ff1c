"""`dualml run` from the outside, with the referee as the only backend: no framework is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

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


def dualml(
    *words: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dualml", *map(str, words)],
        text=True,
        timeout=120,
        capture_output=True,
        cwd=cwd or tempfile.gettempdir(),  # not the checkout: what is installed is tested
        env={**os.environ, **(env or {})},
        check=False,
    )


def run(lab: object, out: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = dualml("run", lab, "--backend", "numpy", "--out", out, "--no-report", "--json", *words)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_the_run_folder_holds_what_the_contract_says(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "out")
    assert code == 0
    out = tmp_path / "out"
    on_disk = strict((out / "run.json").read_text())
    assert {"format", "experiment", "plan_hash", "environment", "trials", "data"} <= set(on_disk)
    assert told["trials"] == on_disk["trials"]
    wanted = {
        "arm",
        "backend",
        "seed",
        "status",
        "reason",
        "wall_s",
        "train_s",
        "final_loss",
        "test_accuracy",
        "plan_hash",
        "how",
    }
    for trial in on_disk["trials"]:
        assert wanted <= set(trial)
        assert (trial["status"], trial["plan_hash"]) == ("ok", on_disk["plan_hash"])
        place = out / "trials" / trial["arm"] / "numpy" / "seed0"
        records = [strict(line) for line in (place / "rank0.jsonl").read_text().splitlines()]
        assert all({"metric", "step", "value", "unit"} <= set(r) for r in records)
        losses = [r for r in records if r["metric"] == "loss"]
        assert [r["step"] for r in losses] == list(range(1, trial["updates"] + 1))
        assert losses[-1]["value"] < losses[0]["value"]
        assert set(load_file(place / "weights.safetensors")) == {"fc.weight", "fc.bias"}
        assert not (place / "checkpoint.safetensors").exists()
    assert strict((out / "parity.json").read_text())["comparisons"] == []
    assert (out / "plan" / "weights.safetensors").exists()


def test_the_same_experiment_gives_the_same_numbers(lab: Path, tmp_path: Path) -> None:
    _, one = run(lab, tmp_path / "1")
    _, two = run(lab, tmp_path / "2")
    for a, b in zip(one["trials"], two["trials"], strict=True):
        assert a["final_loss"] == b["final_loss"]
    assert one["plan_hash"] == two["plan_hash"]


def test_options_and_arguments_may_stand_in_any_order(lab: Path, tmp_path: Path) -> None:
    done = dualml(
        "run",
        "--backend",
        "numpy",
        lab,
        "--arm",
        "gd",
        "--no-report",
        "--json",
        "--out",
        tmp_path / "o",
        "--seed",
        "3,4",
    )
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout)["trials"]
    assert [(t["arm"], t["seed"]) for t in trials] == [("gd", 3), ("gd", 4)]


@pytest.mark.parametrize(("words", "message"), [
    (["lap1"], "did you mean 'lab1'"),
    ([], "name an experiment"),
    (["LAB", "--backend", "torhc"], "did you mean 'torch'"),
    (["LAB", "--set", "arms.sgd.optimizer.lrr=1"], "did you mean 'lr'"),
    (["LAB", "--set", "arms.sgd.optimizer.lr=-1"], "0 < lr"),
    (["LAB", "--data", "mnits"], "did you mean 'mnist'"),
    (["LAB", "--lang", "fr"], "en or zh"),
    (["LAB", "--seed", "one"], "whole numbers"),
    (["LAB", "--device", "tpu"], "unknown device 'tpu'"),
    (["LAB", "--device", "cuda"], "CPU only"),
    (["LAB", "--threads", "-1"], "threads"),
    (["LAB", "--nonsense"], "nonsense"),
    (["--resume", "nowhere"], "not a run folder"),
    (["LAB", "--resume", "nowhere", "--quick"], "leave out --quick"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(
    lab: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    given = [str(lab) if w == "LAB" else w for w in words]
    extra = [] if {"--backend", "--resume"} & set(given) else ["--backend", "numpy"]
    done = dualml("run", *given, *extra, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_folder_in_use_is_not_touched(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    done = dualml("run", lab, "--backend", "numpy", "--out", out)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_an_unwritable_folder_is_one_line(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "file" / "out")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_diverging_arm_fails_and_the_others_go_on(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "o", "--set", "arms.gd.optimizer.lr=1e30")
    assert code == 1
    gd, sgd = told["trials"]
    assert gd["status"] == "failed"
    assert "arm gd" in gd["reason"]
    assert "step" in gd["reason"]
    assert "learning rate" in gd["reason"]
    assert sgd["status"] == "ok"


def test_an_update_that_moves_nothing_fails_and_names_the_optimizer(
    lab: Path, tmp_path: Path
) -> None:
    _, told = run(lab, tmp_path / "o", "--set", "arms.sgd.optimizer.lr=1e-300")
    sgd = told["trials"][1]
    assert sgd["status"] == "failed"
    assert "sgd moved no parameter" in sgd["reason"]


def test_the_time_limit_of_a_trial(lab: Path, tmp_path: Path) -> None:
    _, told = run(lab, tmp_path / "o", "--set", "limits.trial=0.05", "--arm", "gd")
    assert told["trials"][0]["status"] == "failed"
    assert "time limit of 0.05 s" in told["trials"][0]["reason"]


def test_interrupted_and_resumed_is_bit_identical(lab: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a trial, then --resume: as if nothing had happened."""
    words = [
        "--set",
        "arms.sgd.updates=20000",
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
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dualml",
            "run",
            str(lab),
            "--backend",
            "numpy",
            "--out",
            str(out),
            "--no-report",
            *words,
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DUALML_CHECKPOINT_S": "0.2"},
    )
    place = out / "trials" / "sgd" / "numpy" / "seed0"
    deadline = time.monotonic() + 60
    while not (place / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
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


def records(out: Path) -> list[dict[str, Any]]:
    """All records without the seconds, which no two runs share."""
    lines = (out / "trials/sgd/numpy/seed0/rank0.jsonl").read_text().splitlines()
    return [{k: v for k, v in strict(line).items() if k != "seconds"} for line in lines]


def test_finished_trials_are_not_run_again(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    run(lab, out)
    before = {p: p.stat().st_mtime_ns for p in out.glob("trials/**/*")}
    assert dualml("run", "--resume", out, "--no-report").returncode == 0
    assert {p: p.stat().st_mtime_ns for p in out.glob("trials/**/*")} == before


@pytest.mark.parametrize(("change", "message"), [
    ({"format": 99}, "newer dualml"),
    ({"plan_hash": "0" * 64}, "cannot be resumed"),
    ({"format": None}, "newer dualml"),
])  # fmt: skip
def test_a_foreign_or_newer_folder_is_not_resumed(
    lab: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    out = tmp_path / "o"
    run(lab, out, "--arm", "gd")
    told = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**told, **change}))
    done = dualml("run", "--resume", out)
    assert done.returncode == 2
    assert message in done.stderr


def test_list_and_show(lab: Path) -> None:
    listed = dualml("list")
    assert listed.returncode == 0
    assert listed.stdout.startswith("lab1")
    assert "实验一" in dualml("list", "--lang", "zh").stdout
    shown = dualml("show", lab, "--json")
    assert strict(shown.stdout)["arms"]["sgd"]["optimizer"]["momentum"] == 0.9
    assert "sgd" in dualml("show", "lab1").stdout
    assert dualml("show", "lab9").returncode == 2


def test_parity_of_something_else_is_refused(tmp_path: Path) -> None:
    done = dualml("parity", tmp_path)
    assert done.returncode == 2
    assert "not a run folder" in done.stderr


def test_a_full_disk_is_one_line_and_the_folder_stays_readable(lab: Path, tmp_path: Path) -> None:
    """/dev/full refuses every byte: first the worker's result, then the run's own summary."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    code = (
        "import errno, os, pathlib, sys\n"
        "import dualml.files\n"
        "write = pathlib.Path.write_bytes\n"
        "def full(self, content):\n"
        "    if 'run.json' in self.name and pathlib.Path(sys.argv[-1], 'trials').exists():\n"
        "        with open('/dev/full', 'wb') as file:\n"
        "            file.write(content)\n"
        "    return write(self, content)\n"
        "pathlib.Path.write_bytes = full\n"
        "from dualml.cli import main\n"
        "main()\n"
    )
    out = tmp_path / "o"
    done = subprocess.run([sys.executable, "-c", code, "run", str(lab), "--backend", "numpy",
                           "--no-report", "--arm", "gd", "--out", str(out)],
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "run.json: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert strict((out / "run.json").read_text())["trials"][0]["status"] == "interrupted"
    assert dualml("run", "--resume", out, "--no-report").returncode == 0


def test_reasons_of_a_worker_are_one_line() -> None:
    import errno

    from dualml.runner.worker import reason_of

    full = OSError(errno.ENOSPC, "No space left on device", "trace.safetensors")
    assert reason_of(full) == ("failed", "no space left on the device for trace.safetensors")
    assert "smaller batch" in reason_of(MemoryError())[1]
    assert reason_of(ZeroDivisionError("a\nb")) == ("failed", "ZeroDivisionError: a")
