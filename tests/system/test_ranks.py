"""The outcome of a run whose rank is killed, stopped, fails or hangs, or whose owner disappears.

Each run has one arm per failure: a failed trial does not prevent the later ones, so one run shows
many.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from conformance.backends import require
from running import LaunchedRun, dualml, trials

pytestmark = pytest.mark.system
FRAMEWORKS = ["torch", "mindspore"]
WITHIN_S = 10.0

HEAD = """
name = "misfortunes"
model = "softmax"
title = { en = "Misfortunes", zh = "意外" }
data = { name = "digits", train = 200, test = 20 }
evaluation = { train_samples = 10, per_epoch = 1, early = [10] }
parity = { draws = 2, horizon = 100, share = 0 }
"""
ARM = """
[arms.{name}]
optimizer = {{ name = "sgd", lr = 0.05 }}
world_size = {size}
batch_size = 20
updates = {updates}
aggregation = {{ strategy = "ring" }}
"""


def lab(folder: Path, arms: list[str], size: int = 2, updates: int = 200, limits: str = "") -> Path:
    path = folder / "lab.toml"
    text = HEAD + f"limits = {{ collective = 40{limits} }}\n"
    text += "".join(ARM.format(name=name, size=size, updates=updates) for name in arms)
    path.write_text(text)
    return path


#: Arm → signal, rank that receives it, and moment: before the rendezvous, during the updates, or
#: after them. Other arms are not disturbed. The backends together cover every pair of signal and
#: moment.
MISFORTUNES = {
    "torch": {
        "start-kill-1": (signal.SIGKILL, 1, "start"),
        "train-stop-1": (signal.SIGSTOP, 1, "train"),
        "peace": None,
        "end-kill-0": (signal.SIGKILL, 0, "end"),
    },
    "mindspore": {
        "start-stop-0": (signal.SIGSTOP, 0, "start"),
        "train-kill-1": (signal.SIGKILL, 1, "train"),
        "peace": None,
        "end-stop-1": (signal.SIGSTOP, 1, "end"),
    },
}
WORDS = {signal.SIGKILL: "was ended by SIGKILL", signal.SIGSTOP: "was stopped (SIGSTOP)"}


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_rank_that_is_killed_or_stopped_fails_its_trial_alone(
    backend: str, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    require(backend)
    out = tmp_path / "out"
    words = ["--backend", backend, "--out", out, "--no-report"]
    took = {}
    with LaunchedRun(
        dualml("run", lab(tmp_path, list(MISFORTUNES[backend])), *words), tmp_path
    ) as run:
        for arm, misfortune in MISFORTUNES[backend].items():
            place = out / "trials" / arm / backend / "seed0"
            if misfortune is None:
                run.wait_for(lambda arm=arm: trials(out)[arm]["status"] == "ok")
                continue
            sign, number, moment = misfortune
            reached = {
                "start": lambda: True,
                "train": lambda p=place: size_of(p / "rank0.jsonl") > 500,
                "end": lambda p=place: (p / "trace.safetensors").exists(),
            }[moment]
            run.wait_for(reached)
            victim = run.wait_for(lambda number=number: run.rank(number))
            run.note_ports()
            victim.send_signal(sign)
            begin = time.monotonic()
            ended = ("failed", "ok") if moment == "end" else ("failed",)
            run.wait_for(lambda a=arm, e=ended: trials(out)[a]["status"] in e, 3 * WITHIN_S)
            if trials(out)[arm]["status"] == "ok":
                continue  # its last word was out before the signal came
            took[arm] = round(time.monotonic() - begin, 1)
            assert not psutil.pid_exists(victim.pid)
            trial = trials(out)[arm]
            assert trial["reason"].startswith(f"rank {number} {WORDS[sign]}"), (arm, trial)
            assert isinstance(trial["log"], list)
        assert run.end() == 1, run.text()
        took["the whole run, after the last"] = round(time.monotonic() - begin, 1)
    record_property("seconds", took)
    print(backend, took)
    assert max(took.values()) < WITHIN_S, took
    with LaunchedRun(dualml("run", "--resume", out, "--no-report"), tmp_path) as again:
        assert again.end() == 0, again.text()
    assert {t["status"] for t in trials(out).values()} == {"ok"}


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


#: Read by every worker at its start: the failure of each arm, and its rank.
PLANTED = """
import os, sys
words = sys.orig_argv
if "dualml.runner.worker.main" in words:
    import time
    import dualml.experiment.store.plan as saved
    from dualml.runner.worker.trial import TrialRunner
    at = words.index("dualml.runner.worker.main")
    rank, begun = words[at + 1], words[at + 2].split(os.sep)[-3]
    faults = dict(word.split("=") for word in os.environ["DUALML_TEST_FAULTS"].split(","))
    write_losses, hash_parts = TrialRunner.write_losses, saved.hash_parts

    def planted(self, records, first, last):
        fault = faults.get(f"{self.arm_name}:{rank}")
        if fault == "raise":
            raise ValueError("a planted error")
        if fault == "hang":
            time.sleep(600)
        write_losses(self, records, first, last)

    def other(parts):
        changed = faults.get(f"{begun}:{rank}") == "plan"
        return hash_parts({**parts, "order": "0" * 64} if changed else parts)

    TrialRunner.write_losses, saved.hash_parts = planted, other
"""


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_the_rank_at_fault_is_named_not_those_that_waited_for_it(
    backend: str, tmp_path: Path
) -> None:
    require(backend)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(PLANTED)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    env = {
        "PYTHONPATH": path,
        "DUALML_FORK": "0",
        "DUALML_TEST_FAULTS": "errs:2=raise,hangs:1=hang,strays:1=plan",
    }
    out = tmp_path / "out"
    file = lab(tmp_path, ["errs", "hangs", "strays"], 3, 30, ", silence = 12")
    words = ["--backend", backend, "--out", out, "--no-report"]
    with LaunchedRun(dualml("run", file, *words), tmp_path, env) as run:
        assert run.end(200) == 1, run.text()
    told = {arm: (t["status"], t["reason"]) for arm, t in trials(out).items()}
    assert told["errs"] == ("failed", "rank 2: ValueError: a planted error")
    assert told["hangs"] == ("failed", "rank 1 gave no sign of life for 12 s")
    assert told["strays"][1].startswith(f"rank 1: {out}/plan: the plan's hash is "), told
    place = out / "trials/errs" / backend / "seed0"
    assert any("a planted error" in line for line in trials(out)["errs"]["log"])
    assert "a planted error" in (place / "rank2.log").read_text()
    assert all((place / f"rank{rank}.log").exists() for rank in range(3))


@pytest.mark.parametrize(
    ("backend", "signs"),
    [
        ("torch", [signal.SIGINT, signal.SIGINT]),  # an impatient user
        ("mindspore", [signal.SIGTERM]),
    ],
)
def test_ranks_go_with_their_owner_and_the_run_goes_on(
    backend: str, signs: list[signal.Signals], tmp_path: Path
) -> None:
    """A run survives three events: interruption, then (resumed, with a stopped rank) the kill of
    its owner, then its end."""
    require(backend)
    out = tmp_path / "out"
    records = out / "trials/only" / backend / "seed0/rank0.jsonl"
    file = lab(tmp_path, ["only"], updates=1000)
    words = ["--backend", backend, "--out", out, "--no-report"]
    with LaunchedRun(dualml("run", file, *words), tmp_path) as run:
        run.wait_for(lambda: size_of(records) > 3000)
        begin = time.monotonic()
        for sign in signs:
            run.process.send_signal(sign)
            time.sleep(0.3)
        assert run.end(WITHIN_S) == 130, run.text()
        print(backend, "interrupted", round(time.monotonic() - begin, 1))
        assert f"dualml run --resume {out}" in run.text()
        assert "Traceback" not in run.text()
    assert trials(out)["only"]["status"] == "interrupted"
    before = records.stat().st_mtime_ns
    with LaunchedRun(dualml("run", "--resume", out, "--no-report"), tmp_path) as again:
        again.wait_for(lambda: records.stat().st_mtime_ns != before)
        stopped = again.rank(1)
        assert stopped is not None
        stopped.send_signal(signal.SIGSTOP)
        again.process.send_signal(signal.SIGKILL)
        again.process.wait(timeout=5)
        again.assert_nothing_left(WITHIN_S)
    with LaunchedRun(dualml("run", "--resume", out, "--no-report"), tmp_path) as last:
        assert last.end() == 0, last.text()
    assert trials(out)["only"]["status"] == "ok"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert [r["step"] for r in lines if r["metric"] == "loss"] == list(range(1, 1001))
