"""Lab 1 on the real frameworks, through the command line, as a user sees it."""

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

import numpy as np
import psutil
import pytest
from conformance.backends import require
from running import one_core
from safetensors.numpy import load_file

pytestmark = pytest.mark.system
FRAMEWORKS = ["torch", "mindspore"]
SMALL = [
    "--data",
    "digits",
    "--set",
    "data.train=256",
    "--set",
    "data.test=100",
    "--set",
    "parity.draws=2",
    "--set",
    "parity.horizon=20",
]


def dualml(*words: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "dualml", *map(str, words)],
        text=True,
        capture_output=True,
        timeout=timeout,
        cwd=tempfile.gettempdir(),  # not the checkout: what is installed is tested
        check=False,
    )


def installed() -> str:
    """Return the installed frameworks as a --backend word; skip the test if there are none."""
    import importlib.util

    found = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    if not found:
        pytest.skip("no framework is installed")
    return ",".join(found)


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the workers that this ``dualml run`` has started."""
    return psutil.Process(process.pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    _, left = psutil.wait_procs(processes, timeout=5)
    return left


def test_quick_lab1_with_the_referee_leaves_equal_verdicts_and_a_report(tmp_path: Path) -> None:
    backends = installed()
    out = tmp_path / "out"
    done = dualml(
        "run",
        "lab1",
        "--quick",
        "--backend",
        f"{backends},numpy",
        "--out",
        out,
        "--json",
        "--threads",
        "1",
        *SMALL,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {t["status"] for t in told["trials"]} == {"ok"}
    for c in told["parity"]:
        assert c["verdict"] == "equal", c
    assert {(t["arm"], t["backend"]) for t in told["trials"]} == {
        (a, b) for a in ("gd", "sgd", "adam") for b in [*backends.split(","), "numpy"]
    }
    page = (out / "report.html").read_text()
    assert "<svg" in page
    for name in backends.split(","):
        package = {"torch": "dualml_torch", "mindspore": "dualml_ms"}[name]
        assert f"{package}/algorithms/optim/adam.py" in page
        assert told["environment"][name][name]
    assert "中" in rendered_again(out, "zh")


def rendered_again(out: Path, lang: str) -> str:
    done = dualml("report", out, "--lang", lang)
    assert done.returncode == 0, done.stderr
    return (out / "report.html").read_text()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_run_leaves_canonical_names_and_finite_weights(name: str, tmp_path: Path) -> None:
    require(name)
    done = dualml(
        "run",
        "lab1",
        "--quick",
        "--backend",
        name,
        "--arm",
        "adam",
        "--no-report",
        "--out",
        tmp_path / "o",
        *SMALL,
    )
    assert done.returncode == 0, done.stderr
    weights = load_file(tmp_path / "o/trials/adam" / name / "seed0/weights.safetensors")
    assert sorted(weights) == sorted(
        f"{layer}.{leaf}"
        for layer in ("conv1", "conv2", "fc1", "fc2")
        for leaf in ("weight", "bias")
    )
    assert all(np.isfinite(w).all() and w.dtype == np.float32 for w in weights.values())


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize(
    ("sign", "words"),
    [
        (signal.SIGKILL, "was ended by SIGKILL"),
        (signal.SIGSTOP, "was stopped (SIGSTOP)"),
    ],
    ids=["killed", "stopped"],
)
def test_a_dead_or_frozen_worker_fails_its_trial_and_nothing_is_left(
    name: str, sign: signal.Signals, words: str, tmp_path: Path
) -> None:
    require(name)
    env = {**os.environ, "DUALML_TORCH_COMPILE": "never"}  # so long a trial would be
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dualml", "run", "lab1", "--backend", name, "--arm", "sgd",
         "--no-report", "--out", str(tmp_path / "o"), *SMALL, "--set", "arms.sgd.epochs=2000",
         "--set", "limits.silence=15"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)  # fmt: skip
    records = tmp_path / "o/trials/sgd" / name / "seed0/rank0.jsonl"
    wait_for(lambda: records.exists() and records.stat().st_size > 2000, process)
    started = workers(process)
    assert started
    started[-1].send_signal(sign)  # the others are what it was forked from
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1, error
    (trial,) = json.loads((tmp_path / "o/run.json").read_text())["trials"]
    assert (trial["status"], words in trial["reason"]) == ("failed", True), trial
    assert not alive(started)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_ctrl_c_then_resume_is_bit_identical(name: str, tmp_path: Path) -> None:
    require(name)
    words = [
        "run",
        "lab1",
        "--backend",
        name,
        "--arm",
        "adam",
        "--no-report",
        *SMALL,
        "--set",
        "arms.adam.updates=300",
        "--set",
        "evaluation.train_samples=8",
        "--set",
        "data.test=8",
        "--threads",
        "1",
    ]
    with one_core():
        whole = dualml(*words, "--out", tmp_path / "whole")
        assert whole.returncode == 0, whole.stderr
        cut = tmp_path / "cut"
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dualml", *words, "--out", str(cut)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "DUALML_CHECKPOINT_S": "0.3"},
        )
        place = Path("trials/adam") / name / "seed0"
        wait_for(lambda: (cut / place / "checkpoint.safetensors").exists(), process)
        started = workers(process)
        assert started
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert process.returncode == 130, error
        assert not alive(started)
        done = dualml("run", "--resume", cut, "--no-report")
        assert done.returncode == 0, done.stderr
    for file in ("weights.safetensors", "trace.safetensors"):
        a, b = (load_file(tmp_path / where / place / file) for where in ("whole", "cut"))
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a), file


def wait_for(condition: Any, process: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate(timeout=10)
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "device"), [("torch", "cuda"), ("mindspore", "gpu")])
def test_a_device_that_is_not_there(name: str, device: str, tmp_path: Path) -> None:
    require(name)
    if name == "torch":
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
    done = dualml("run", "lab1", "--backend", name, "--device", device, "--out", tmp_path / "o")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_diverging_arm_names_its_step(name: str, tmp_path: Path) -> None:
    require(name)
    done = dualml(
        "run",
        "lab1",
        "--quick",
        "--backend",
        name,
        "--arm",
        "sgd",
        "--no-report",
        "--out",
        tmp_path / "o",
        *SMALL,
        "--set",
        "arms.sgd.optimizer.lr=1e6",
    )
    assert done.returncode == 1
    (trial,) = json.loads((tmp_path / "o/run.json").read_text())["trials"]
    assert "at step" in trial["reason"]
    assert "arm sgd" in trial["reason"]


@pytest.mark.mnist
@pytest.mark.slow("the referee trains LeNet for a minute; the quick lab holds the same parity")
def test_200_steps_of_gd_and_sgd_on_mnist_are_equal(tmp_path: Path) -> None:
    """GD and SGD train equally with the shipped step sizes on real data: 200 updates, with a
    smaller pool for GD."""
    if not (Path(os.environ.get("DUALML_DATA", "/nowhere")) / "mnist").is_dir():
        pytest.skip("DUALML_DATA has no mnist")
    backends = installed()
    done = dualml("run", "lab1", "--backend", f"{backends},numpy", "--data", "mnist", "--json",
                  "--arm", "gd", "--arm", "sgd", "--no-report", "--out", tmp_path / "o",
                  "--threads", "1", "--set", "arms.gd.samples=64", "--set", "arms.sgd.updates=200",
                  "--set", "data.test=500", "--set", "evaluation.train_samples=500",
                  "--set", "parity.draws=2", timeout=290)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for c in json.loads(done.stdout)["parity"]:
        assert (c["verdict"], c["steps"]) == ("equal", 200), c
