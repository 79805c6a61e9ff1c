"""Runs queued on this machine: real processes with the NumPy backend."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.runner.jobs import control, local, logs
from dualml.runner.jobs.local import STARTS, Capacity, LocalQueue, usable_core_ids
from dualml.runner.jobs.process import process_start_time
from dualml.runner.jobs.sbatch import sbatch_options
from dualml.runner.jobs.scheduler import PID
from dualml.runner.jobs.store import (
    JOB,
    MAX_QUEUED,
    STATE,
    VARIABLE,
    Jobs,
    JobSpec,
    JobState,
    remove_unstarted,
)

pytestmark = [pytest.mark.whole, pytest.mark.timeout(300)]

TOML = """
name = "tiny-jobs"
model = "softmax"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 200, test = 20 }
evaluation = { train_samples = 10 }
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 20
updates = 3
"""
#: Enough updates that a test can stop the run.
LONG = ["--set", "arms.one.updates=200000", "--set", "arms.one.accumulation_batch=1"]
QUIET = ["--backend", "numpy", "--no-report"]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """A private jobs folder; processes left over are ended."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "jobs"))
    monkeypatch.setenv("DUALML_CHECKPOINT_S", "0.2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.toml").write_text(TOML)
    yield Jobs(tmp_path / "jobs")
    for process in live_processes(tmp_path / "jobs"):
        process.kill()


def live_processes(path: Path) -> list[psutil.Process]:
    """Return the processes of the queue (if it runs) and of its jobs."""
    jobs, pids = Jobs(path), list[int]()
    with contextlib.suppress(FileNotFoundError):
        pids.append(int((path / PID).read_text()))
    for number in jobs.numbers():
        with contextlib.suppress(UserError):  # one that a test has damaged
            pids += [pid for pid in [jobs.state(number).pid] if pid is not None]
    return [
        psutil.Process(pid)
        for pid in pids
        if pid != os.getpid() and process_start_time(pid) is not None
    ]


def has_no_processes(path: Path) -> bool:
    return not live_processes(path)


def wait(condition: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def run_dualml(*words: object) -> subprocess.CompletedProcess[str]:
    return dualml(*words, cwd=Path.cwd())


def command(*words: object) -> str:
    """Run dualml in a separate process, so that its children may outlive it; return its output."""
    line = local.machine.python_argv("-m", "dualml", *map(str, words))
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(*words: object) -> int:
    return int(json.loads(command("submit", "lab.toml", *QUIET, "--json", *words))["id"])


def status(jobs: Jobs, number: int) -> str:
    return jobs.state(number).status


def test_one_after_the_other(jobs: Jobs, tmp_path: Path) -> None:
    assert command("jobs").strip() == "no jobs: dualml submit LAB queues one"
    first, second = submit(), submit("--seed", 1)
    assert (first, second) == (1, 2)
    listed = json.loads(command("jobs", "--json"))["jobs"]
    assert [row["id"] for row in listed] == [1, 2]
    assert command("logs", "-f", second).count("✓ one · numpy") == 1
    assert {status(jobs, n) for n in (1, 2)} == {"ok"}
    # With all cores each, the second began when the first had ended.
    ends = [jobs.state(n).since for n in (1, 2)]
    assert ends[0] < ends[1]
    wait(lambda: has_no_processes(jobs.path), 20)  # nobody stays when nothing waits
    assert (tmp_path / "runs/tiny-jobs-job1/run.json").exists()
    log = tmp_path / "runs/tiny-jobs-job1/trials/one/numpy/seed0/rank0.log"
    assert command("logs", 1, "--rank", 0) == log.read_text()
    rows = json.loads(command("jobs", "--json"))["jobs"]
    assert [(row["ended"], row["total"], row["code"]) for row in rows] == [(1, 1, 0)] * 2
    assert "ended well" in command("jobs")
    assert "正常结束" in command("jobs", "--lang", "zh")


def test_two_at_a_time_have_cores_of_their_own(jobs: Jobs) -> None:
    if len(usable_core_ids()) < 2:
        pytest.skip("one core")
    numbers = [submit("--cores", 1, *LONG) for _ in range(2)]
    wait(lambda: all(status(jobs, n) == "running" and jobs.state(n).pid for n in numbers))
    used = [jobs.state(n).cores for n in numbers]
    assert len(used[0]) == len(used[1]) == 1
    assert used[0] != used[1]
    for number, cores in zip(numbers, used, strict=True):
        pid = jobs.state(number).pid
        assert pid is not None
        wait(lambda pid=pid, cores=cores: os.sched_getaffinity(pid) == set(cores), 20)
    third = submit("--cores", 1)
    assert json.loads(command("jobs", "--json"))["jobs"][2]["place"] == 1
    command("stop", numbers[0])
    wait(lambda: status(jobs, third) == "ok")
    command("stop", numbers[1])
    assert [status(jobs, n) for n in numbers] == ["stopped"] * 2
    wait(lambda: has_no_processes(jobs.path), 20)


def test_a_job_that_was_stopped_goes_on(jobs: Jobs, tmp_path: Path) -> None:
    settings = ["--set", "arms.one.updates=1000", "--set", "arms.one.accumulation_batch=1"]
    number = submit(*settings)
    out = tmp_path / "runs/tiny-jobs-job1"
    wait(lambda: (out / "trials/one/numpy/seed0/checkpoint.safetensors").exists())
    assert "stopped" in command("stop", number)
    assert jobs.state(number).code == 130
    done = run_dualml("stop", number)
    assert (done.returncode, "has ended already: stopped" in done.stderr) == (2, True)
    command("resume", number)
    wait(lambda: status(jobs, number) == "ok")
    command("run", "lab.toml", *QUIET, *settings, "--out", "alone")
    place = "trials/one/numpy/seed0/weights.safetensors"
    assert (out / place).read_bytes() == (tmp_path / "alone" / place).read_bytes()
    done = run_dualml("resume", number)
    assert (done.returncode, ": ended well; only one that failed" in done.stderr) == (2, True)


def test_a_killed_queue_and_a_killed_job_lose_nothing(jobs: Jobs) -> None:
    number, waiting = submit(*LONG), submit()
    wait(lambda: jobs.state(number).pid)
    queue = int((jobs.path / PID).read_text())
    os.kill(queue, signal.SIGKILL)
    wait(lambda: process_start_time(queue) is None)
    assert status(jobs, number) == "running"  # the job goes on without it
    command("jobs")  # whoever looks starts it again, where none was about to come
    wait(lambda: len(live_processes(jobs.path)) == 2)
    pid = jobs.state(number).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait(lambda: jobs.state(number).starts == 2 and jobs.state(number).pid not in (None, pid))
    assert jobs.state(number).reason == "its process was gone"
    command("stop", number)
    wait(lambda: status(jobs, waiting) == "ok")
    wait(lambda: has_no_processes(jobs.path), 20)


def test_what_goes_down_with_the_machine_comes_back(jobs: Jobs) -> None:
    """A job that is ended by SIGTERM, as at a shutdown, is started again."""
    number = submit(*LONG)
    pid = wait(lambda: jobs.state(number).pid)
    os.kill(pid, signal.SIGTERM)
    wait(lambda: jobs.state(number).starts == 2)
    command("stop", number)
    assert status(jobs, number) == "stopped"


def test_two_queues_are_one(jobs: Jobs) -> None:
    number = submit(*LONG)
    wait(lambda: jobs.state(number).pid)
    second = subprocess.Popen(
        local.machine.python_argv("-m", "dualml.runner.jobs.scheduler", str(jobs.path))
    )
    assert second.wait(30) == 0
    assert len(live_processes(jobs.path)) == 2  # the first one and the job
    command("stop", number)


def test_two_submissions_at_once(jobs: Jobs, tmp_path: Path) -> None:
    words = [*local.machine.python_argv("-m", "dualml"), "submit", "lab.toml", *QUIET]
    both = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(60) for process in both] == [0, 0, 0]
    assert jobs.numbers() == [1, 2, 3]
    wait(lambda: all(status(jobs, n) == "ok" for n in (1, 2, 3)))
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_a_job_that_takes_too_much_memory_is_ended(jobs: Jobs) -> None:
    number = submit("--memory", "20MB", *LONG)
    wait(lambda: status(jobs, number) == "failed")
    assert "MB; it asked for 19 MB" in str(jobs.state(number).reason)
    wait(lambda: has_no_processes(jobs.path), 20)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch"], "unknown experiment 'nosuch'"),
        (["lab.toml", "--bcakend", "numpy"], "No such option: --bcakend"),
        (["lab.toml", "--backend", "nmpy"], "did you mean 'numpy'"),
        (["lab.toml", "--arm", "two"], "has no arm 'two'"),
        (["lab.toml", "--on", "mars"], "--on must be one of local, slurm, compose, kubernetes"),
        (["lab.toml", "--cores", "999"], "the job asks for 999 cores; this machine has"),
        (["lab.toml", "--gpus", "99"], "the job asks for 99 GPUs; this machine has"),
        (["lab.toml", "--memory", "900TB"], "GiB of memory; this machine has"),
        (["lab.toml", "--memory", "much"], "--memory 'much': write bytes"),
        (["lab.toml", "--nodes", "2"], "--nodes is for --on slurm"),
        (["lab.toml", "--on", "slurm", "--cores", "2"], "are for --on local"),
        (["lab.toml", "--on", "slurm", "--time", "soon"], "--time 'soon': use minutes"),
        (["lab.toml", "--on", "slurm", "--partition", "a b"], "is no name of a partition"),
        (["lab.toml", "--on", "slurm", "--sbatch", "--mem 8G"], "use one option"),
        (["lab.toml", "--on", "slurm", "--sbatch=--mem=8G\n#SBATCH --exclusive"], "use one option"),
        (["lab.toml", "--on", "slurm", "--sbatch=--output=x"], "dualml's script says that itself"),
        (["lab.toml", "--resume", "o"], "submit takes no --resume: dualml resume"),
        (["lab.toml", "--rank", "1"], "submit takes no --rank"),
    ],
)
def test_what_cannot_be_queued_is_said_at_once(jobs: Jobs, words: list[str], message: str) -> None:
    more = [] if {"--backend", "--bcakend"} & set(words) else ["--backend", "numpy"]
    done = run_dualml("submit", *words, *more)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert jobs.numbers() == []


def test_numbers_that_no_job_has(jobs: Jobs) -> None:
    for words in (["logs", "1"], ["stop", "1"], ["resume", "1"]):
        done = run_dualml(*words)
        assert (done.returncode, "there is no job 1 in" in done.stderr) == (2, True), done.stderr
        assert "none was submitted" in done.stderr
    assert run_dualml("stop", "0").returncode == 2
    assert run_dualml("stop", "x").returncode == 2


# --- without processes ----------------------------------------------------------------------------


def add_job(jobs: Jobs, **changed: Any) -> JobSpec:
    return jobs.add(
        **{
            "on": "local",
            "words": ["lab"],
            "cwd": "/",
            "out": "/x/{id}",
            "python": "python",
            **changed,
        }
    )


def test_jobs_of_others_are_left_alone(jobs: Jobs) -> None:
    job = add_job(jobs)
    JOB.write(jobs.folder(1), job.model_copy(update={"host": "elsewhere"}))
    with pytest.raises(UserError, match="job 1 is of elsewhere, this is"):
        control.stop(jobs, 1)
    JOB.write(jobs.folder(1), job.model_copy(update={"user": "somebody"}))
    with pytest.raises(UserError, match="job 1 is of user somebody"):
        control.stop(jobs, 1)


def test_a_full_queue(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualml.runner.jobs.store.MAX_QUEUED", 2)
    assert MAX_QUEUED > 2
    add_job(jobs)
    add_job(jobs)
    with pytest.raises(UserError, match="2 jobs are waiting"):
        add_job(jobs)
    with jobs.locked():
        jobs.update_state(1, status="stopped")
    assert add_job(jobs).id == 3


def test_nobody_overtakes(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that needs the whole machine is not starved by small ones."""
    begun = list[tuple[int, list[int], list[int]]]()
    monkeypatch.setattr(
        LocalQueue,
        "start",
        lambda self, job, cores, gpus: (
            begun.append((job.id, cores, gpus)),
            self.jobs.update_state(
                job.id,
                status="running",
                cores=cores,
                gpus=gpus,
                pid=os.getpid(),
                created=psutil.Process().create_time(),
            ),
        ),
    )
    queue = LocalQueue(jobs, Capacity(cores=[4, 5, 7], gpus=2, memory=100))
    add_job(jobs, cores=1, gpus=1, memory=60)
    add_job(jobs)  # all cores
    add_job(jobs, cores=1)
    with jobs.locked():
        assert queue.run_once()
    assert begun == [(1, [4], [0])]
    with jobs.locked():
        jobs.update_state(1, status="ok")
        queue.run_once()
    assert begun[1:] == [(2, [4, 5, 7], [])]
    with jobs.locked():
        jobs.update_state(2, status="ok")
        queue.run_once()
    assert begun[2:] == [(3, [4], [])]
    add_job(jobs, cores=1, memory=60)
    add_job(jobs, cores=1, memory=60)
    with jobs.locked():
        queue.run_once()
    assert [number for number, _, _ in begun[3:]] == [4]  # the memory of two is not there


def test_a_job_whose_process_is_gone_is_not_begun_for_ever(jobs: Jobs) -> None:
    add_job(jobs)
    queue = LocalQueue(jobs, Capacity(cores=[0], gpus=0, memory=1))
    with jobs.locked():
        jobs.update_state(1, status="running", pid=2**22 + 1, created=1.0, starts=STARTS)
        assert not queue.run_once()
    state = jobs.state(1)
    assert (state.status, state.reason) == ("failed", f"its process was gone {STARTS} times")


def test_what_was_killed_while_it_began_is_cleared_away(tmp_path: Path) -> None:
    """A plan without a run is removed; foreign files stay, and so does the plan of a run."""
    (tmp_path / "plan").mkdir()
    (tmp_path / ".lock").touch()
    (tmp_path / "plan/plan.json").write_text("{")
    (tmp_path / "mine").touch()
    remove_unstarted(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "plan").mkdir()
    (tmp_path / "run.json").touch()
    remove_unstarted(tmp_path)
    assert (tmp_path / "plan").exists()
    remove_unstarted(tmp_path / "absent")


def test_a_process_of_the_same_number_is_another(jobs: Jobs) -> None:
    state = JobState(status="running", since=0.0, pid=os.getpid(), created=1.0)
    local.kill(state, signal.SIGKILL)  # not this one


def test_options_of_sbatch() -> None:
    none: dict[str, Any] = {
        "nodes": 1,
        "ranks_per_node": 1,
        "gpus_per_node": 0,
        "time": None,
        "partition": None,
        "sbatch": [],
    }
    assert sbatch_options(**none) == []
    assert sbatch_options(
        **{
            **none,
            "nodes": 2,
            "gpus_per_node": 1,
            "time": "1:00",
            "partition": "gpu",
            "sbatch": ["--mem=8G", "--exclusive"],
        }
    ) == [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=1",
        "--time=1:00",
        "--partition=gpu",
        "--mem=8G",
        "--exclusive",
    ]
    for time_ in ("90", "1:30", "1:30:00", "2-12", "2-12:30:00"):
        assert sbatch_options(**{**none, "time": time_}) == [f"--time={time_}"]


def test_a_log_is_followed_to_its_end(jobs: Jobs) -> None:
    job = add_job(jobs)
    with jobs.locked():
        jobs.update_state(1, status="running", pid=os.getpid())
    jobs.log(1).write_text("first ")
    said, end = list[str](), iter([False, False, True])

    def has_ended() -> bool:
        ended = next(end)
        with jobs.log(1).open("a") as file:
            file.write("last" if ended else "more ")
        return ended

    said += logs.follow_file(jobs.log(1), has_ended)
    assert "".join(said) == "first more more last"
    with pytest.raises(UserError, match="has a rank 3 yet"):
        logs.find_log(jobs, job, 3)


def test_damaged_files_are_one_line(jobs: Jobs) -> None:
    add_job(jobs)
    (jobs.folder(1) / STATE.name).write_text("{")
    done = run_dualml("jobs")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "state.json" in done.stderr
