"""Jobs that run commands on this machine: real processes, without a framework."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from command import check_schema
from test_jobs import QUIET, command, has_no_processes, jobs, run_dualml, status, wait

from dualml.common.errors import UserError
from dualml.common.machine import python_argv
from dualml.launch.route import free_port
from dualml.runner.jobs import workers
from dualml.runner.jobs.store import Jobs
from dualml.runner.jobs.workers.diagnosis import describe_end, is_port_used
from dualml.runner.jobs.workers.environment import WorkerEnv
from dualml.runner.jobs.workers.group import run_workers
from dualml.runner.jobs.workers.record import (
    WorkerExit,
    exit_file,
    failure_code,
    first_failure,
    first_failure_under_slurm,
    log_path,
    read_exits,
)

__all__ = ["jobs"]
pytestmark = [pytest.mark.whole, pytest.mark.timeout(300)]

#: A script whose worker 0 listens at the rendezvous; all others connect and send their ranks.
MEET = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as door:
        heard = sorted(int(door.accept()[0].recv(8)) for _ in range(size - 1))
    print("heard of", heard)
else:
    for _ in range(200):
        try:
            with socket.create_connection(place) as way:
                way.sendall(str(rank).encode())
                break
        except OSError:
            time.sleep(0.05)
    print("local rank", os.environ["LOCAL_RANK"], "of", os.environ["LOCAL_WORLD_SIZE"])
"""
ALONE = "print('loss 0.5')\n"
#: A script that reports its rank and uses no communication.
APART = "import os; print('rank', os.environ['RANK'])\n"
#: A script whose worker 1 fails, while the others and a child of theirs would run for long.
FAILS = """
import os, subprocess, sys, time
if os.environ["RANK"] == "1":
    time.sleep(0.5)
    sys.exit("no data here")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", MARK])
time.sleep(600)
"""


def script(text: str, name: str = "run.py") -> list[str]:
    Path(name).write_text(text)
    return [sys.executable, name]


def submit(*words: object) -> int:
    return int(json.loads(command("submit", "--json", *words))["id"])


def alive(mark: str) -> list[psutil.Process]:
    """Return the processes with a word of this test on their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if mark in process.cmdline() else []
        except psutil.Error:
            continue
    return found


def test_workers_that_meet(jobs: Jobs, tmp_path: Path) -> None:
    number = submit("--workers", 3, "--name", "meeting", "--", *script(MEET))
    assert number == 1
    log = command("logs", "meeting", "-f")
    assert "[0] heard of [1, 2]" in log
    assert status(jobs, number) == "ok"
    assert jobs.state(number).reason is None
    assert command("logs", 1, "--rank", 2) == "local rank 2 of 3\n"
    told = json.loads(command("status", "meeting", "--json"))
    check_schema(json.dumps(told))
    assert (told["name"], told["workers"], told["words"][-1]) == ("meeting", 3, "run.py")
    assert [(end["rank"], end["code"]) for end in told["ends"]] == [(0, 0), (1, 0), (2, 0)]
    assert told["out"] == str(tmp_path / "runs/meeting-job1")
    assert "ended well" in command("status", 1)
    assert "正常结束" in command("status", 1, "--lang", "zh")
    done = run_dualml("resume", "meeting")
    assert done.returncode == 2
    assert "job 1 is a command, and dualml cannot go on with one" in done.stderr
    wait(lambda: has_no_processes(jobs.path), 20)


def test_a_script_that_ignores_its_rank_is_noticed(jobs: Jobs) -> None:
    """Workers with equal output and no connection are reported, other output without one gets a
    hint, and a single worker nothing."""
    same = submit("--workers", 2, "--", *script(ALONE, "same.py"))
    apart = submit("--workers", 2, "--lang", "zh", "--", *script(APART, "apart.py"))
    single = submit("--", *script(ALONE, "single.py"))
    wait(lambda: all(status(jobs, n) == "ok" for n in (same, apart, single)))
    assert "printed the same, byte for byte" in str(jobs.state(same).reason)
    assert "the script seems to ignore its rank" in command("logs", same)
    assert "没有在那里建立进程组" in str(jobs.state(apart).reason)
    assert jobs.state(single).reason is None
    assert command("logs", single) == "loss 0.5\n"


def test_a_worker_that_fails_ends_the_others(jobs: Jobs) -> None:
    mark = f"left-behind-{os.getpid()}"
    number = submit("--workers", 3, "--", *script(FAILS.replace("MARK", repr(mark))))
    wait(lambda: status(jobs, number) == "failed")
    state = jobs.state(number)
    assert (state.code, state.reason) == (1, "worker 1 ended with exit code 1")
    assert "no data here" in command("logs", number, "--rank", 1)
    ends = json.loads(command("status", number, "--json"))["ends"]
    assert [end["reason"] for end in ends] == [
        "was ended, as worker 1 failed",
        None,
        "was ended, as worker 1 failed",
    ]
    assert alive(mark) == []
    done = run_dualml("status", number)
    assert "worker 1 ended with exit code 1" in done.stdout


@pytest.mark.parametrize("how", ["stop", "limit", "killed"])
def test_nothing_of_a_command_is_left(jobs: Jobs, how: str) -> None:
    mark = f"endless-{how}-{os.getpid()}"
    text = f"import time; print('begun', flush=True); time.sleep(600)  # {mark}"
    words = [sys.executable, "-c", text, mark]
    limit = ["--time", "0:00:03"] if how == "limit" else []
    number = submit("--workers", 2, *limit, "--", *words)
    wait(lambda: len(alive(mark)) == 2)
    if how == "stop":
        assert "stopped" in command("stop", number)
    elif how == "killed":  # nobody is left who could end them: the system does
        pid = wait(lambda: jobs.state(number).pid)
        os.kill(pid, signal.SIGKILL)
    wait(lambda: alive(mark) == [], 40)
    ended = "failed" if how == "killed" else "stopped"
    wait(lambda: status(jobs, number) == ended, 30)
    reasons = {
        "stop": "None",
        "limit": "ran for longer than its limit of 3 s",
        "killed": "its process was gone, and a command cannot be gone on with",
    }
    assert str(jobs.state(number).reason) == reasons[how]
    wait(lambda: has_no_processes(jobs.path), 20)


def test_a_job_that_has_waited_for_too_long_is_ended(jobs: Jobs) -> None:
    first = submit("--", sys.executable, "-c", "import time; time.sleep(600)")
    wait(lambda: jobs.state(first).pid)
    second = submit("--wait-at-most", 2, "--", *script(ALONE))
    patient = submit("--wait-at-most", 600, "--name", "patient", "--", *script(ALONE))
    wait(lambda: status(jobs, second) == "stopped", 30)
    assert jobs.state(second).reason == "waited for longer than 2 s (--wait-at-most)"
    assert status(jobs, patient) == "queued"
    command("stop", first)
    wait(lambda: status(jobs, patient) == "ok", 30)
    assert not (Path("runs") / f"run-job{second}").exists()


def test_secrets_stand_in_no_file(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DUALML_TOKEN", "NCCL_SECRET", "OMP_API_KEY"):
        monkeypatch.setenv(name, "very secret indeed")
    number = submit("--workers", 2, "--", *script(ALONE))
    wait(lambda: status(jobs, number) == "ok")
    files = [p for folder in (jobs.path, Path("runs")) for p in folder.rglob("*") if p.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"very secret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--"], "after -- stands a command"),
        (["--", "no-such-program"], "no-such-program: there is no such program on the PATH"),
        (["--", "python3", "no.py"], "no.py: there is no such script in "),
        (["lab1", "--", "true"], "before -- stand options of submit; received 'lab1'"),
        (["--bakcend", "torch", "--", "true"], "before -- stand options of submit"),
        (["--workers", "257", "--", "true"], "--workers 257: at most 256"),
        (["--workers", "0", "--", "true"], "should be greater than or equal to 1"),
        (["lab1", "--workers", "2"], "--workers is for a command"),
        (["--nodes", "2", "--workers", "2", "--", "true"], "--nodes is for --on slurm"),
        (["--on", "slurm", "--nodes", "2", "--workers", "3", "--", "true"], "a multiple of 2"),
        (["--ranks-per-node", "2", "--", "true"], "a command has --workers"),
        (["--gpus", "1", "--gpus-per-worker", "1", "--", "true"], "say the same twice"),
        (["--gpus-per-worker", "99", "--", "true"], "the job asks for 99 GPUs; this machine has"),
        (["--name", "7", "--", "true"], "--name '7': use up to 63 letters"),
        (["--name", "a/b", "--", "true"], "--name 'a/b': use"),
        (["--wait-at-most", "0", "--", "true"], "--wait-at-most 0: use seconds, above 0"),
        (["--on", "slurm", "--wait-at-most", "9", "--", "true"], "needs --time"),
        (["--on", "compose", "--wait-at-most", "9", "--render", "x", "--", "true"], "has no queue"),
        (["--out", ".", "--", "true"], "--out . is there already"),
        (["--time", "soon", "--", "true"], "--time 'soon': use minutes"),
        ([], "name an experiment"),
    ],
)
def test_what_cannot_be_queued(jobs: Jobs, words: list[str], message: str) -> None:
    done = run_dualml("submit", *words)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert jobs.numbers() == []


def test_names_of_jobs(jobs: Jobs) -> None:
    submit("--name", "train", "--", *script(ALONE))
    last = submit("--name", "train", "--", *script(ALONE))
    assert jobs.find_number("train") == last
    assert jobs.find_number("1") == 1
    with pytest.raises(UserError, match="'trian' is no number or name of a job; did you mean"):
        jobs.find_number("trian")
    wait(lambda: status(jobs, last) == "ok")


def test_a_run_has_a_name(jobs: Jobs) -> None:
    command("run", "lab.toml", *QUIET, "--name", "first")
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("first-2")
    for words, text in (
        (["--out", "x"], "--out says which folder it is; leave out --name"),
        (["--name", "a b"], "--name 'a b': use up to 63 letters"),
    ):
        done = run_dualml("run", "lab.toml", *QUIET, "--name", "first", *words)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr


EVENTS = """
import os
from tensorboard.summary.writer.event_file_writer import EventFileWriter
EventFileWriter(os.path.join(os.environ["DUALML_JOB_OUT"], "curves")).close()
"""


def test_tensorboard_of_a_job(jobs: Jobs) -> None:
    pytest.importorskip("tensorboard")
    bare = submit("--", *script(ALONE))
    number = submit("--name", "curves", "--", *script(EVENTS, "events.py"))
    wait(lambda: status(jobs, number) == status(jobs, bare) == "ok")
    done = run_dualml("tensorboard", bare)
    assert (done.returncode, "no event files of TensorBoard in" in done.stderr) == (2, True)
    line = python_argv("-m", "dualml", "tensorboard", "curves")
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = said.split()[2]
            assert said.startswith(f"job {number}: http://127.0.0.1:"), said
            with urllib.request.urlopen(url, timeout=60) as page:
                assert b"TensorBoard" in page.read()
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
    assert alive(str(Path("runs/curves-job2").absolute())) == []


# --- what is seen of workers ----------------------------------------------------------------------


def seats(size: int) -> list[WorkerEnv]:
    port = free_port()
    return [
        WorkerEnv(
            rank=rank, local_rank=rank, size=size, local_size=size, address="127.0.0.1", port=port
        )
        for rank in range(size)
    ]


def test_a_group_in_this_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.py").write_text(MEET)
    group = seats(2)
    assert run_workers([sys.executable, str(tmp_path / "run.py")], group, tmp_path / "out") == 0
    assert [ending.met for ending in read_exits(tmp_path / "out", 2)] == [True, None]
    assert describe_end(tmp_path / "out", 2, group[0].port, "en") is None
    assert "[0] heard of [1]" in capfd.readouterr().out
    code = run_workers(
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], group, tmp_path
    )
    assert code == 128 + 9
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    begin = time.monotonic()
    assert run_workers(slow, group, tmp_path / "slow", limit=0.5) == 124
    assert time.monotonic() - begin < 20
    assert "longer than the limit of 0.5 s" in str(read_exits(tmp_path / "slow", 2)[0].reason)
    assert run_workers([str(tmp_path / "nothing")], group, tmp_path / "none") == 127


def test_a_port_that_nobody_uses() -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("the system does not tell")
    assert is_port_used([free_port()]) is False


@pytest.mark.parametrize(
    ("met", "logs", "code", "text"),
    [
        (False, ["a", "a"], 0, "seems to ignore its rank"),
        (False, ["a", "b"], 0, "formed no process group there"),
        (False, ["", ""], 0, "formed no process group there"),
        (True, ["a", "a"], 0, None),
        (None, ["a", "a"], 0, "whether they formed a process group cannot be seen here"),
        (None, ["a", "b"], 0, None),
        (False, ["a", "a"], 3, "worker 1 ended with exit code 3"),
        (False, ["a", "a"], -9, "worker 1 was ended by SIGKILL"),
    ],
)
def test_what_is_said_of_the_end(
    tmp_path: Path, met: bool | None, logs: list[str], code: int, text: str | None
) -> None:
    for rank, log in enumerate(logs):
        log_path(tmp_path, rank).write_text(log)
        known = {"rank": rank, "host": "a", "code": code * rank, "seconds": 1.0}
        known |= {"met": met} if met is not None and rank == 0 else {}
        exit_file(rank).write(tmp_path, WorkerExit.model_validate(known))
    said = describe_end(tmp_path, 2, 29500, "en")
    assert said is None if text is None else text in str(said)


def ended(rank: int, code: int, reason: str | None = None) -> WorkerExit:
    return WorkerExit(rank=rank, host="node", code=code, seconds=1.0, reason=reason)


def test_a_worker_that_died_of_slurms_signal_failed_for_another() -> None:
    killed, failed, noted = ended(0, -15), ended(1, 7), ended(2, -15, "was ended")
    assert first_failure_under_slurm([killed, failed, noted], 3) is failed
    assert first_failure_under_slurm([killed, failed], 3) is failed  # the third left no record
    assert first_failure_under_slurm([noted, killed], 2) is killed
    assert first_failure_under_slurm([noted, killed], 3) is None  # the third may have failed
    assert first_failure_under_slurm([ended(0, 0), noted], 2) is noted
    assert first_failure_under_slurm([ended(0, 0)], 1) is None


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 124), (signal.SIGKILL, 137)])
def test_a_task_that_slurm_ends_does_not_hide_the_one_that_failed(
    tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    """srun reports the largest code of its tasks, so SIGTERM's must not be above SIGKILL's."""
    words = ["--slurm", "--port", str(free_port()), "--out", str(tmp_path), "--"]
    seat = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}
    done = subprocess.run(
        [*python_argv("-m", workers.__name__), *words, "bash", "-c", f"kill -{int(sign)} $$"],
        env={**os.environ, **seat, "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert [ending.code for ending in read_exits(tmp_path, 1)] == [-sign]


def test_without_a_scheduler_a_worker_that_died_of_a_signal_failed_by_itself() -> None:
    killed, failed, noted = ended(0, -15), ended(1, 7), ended(2, -15, "was ended")
    assert first_failure([noted, failed, killed]) is killed
    assert first_failure([noted]) is noted
    assert first_failure([ended(0, 0)]) is None


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (None, None),
        (ended(0, 7), 7),
        (ended(0, -15), 143),
        (ended(0, -15, "was ended"), None),
    ],
)
def test_the_exit_code_of_a_job_is_its_failed_workers(
    failed: WorkerExit | None, code: int | None
) -> None:
    assert failure_code(failed) == code


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "of the 3 workers these left no record of how they ended: 1, 2;"),
        ("zh", "3 个进程中，以下 rank 没有留下结束记录：1, 2；"),
    ],
)
def test_workers_that_left_no_record_are_named(tmp_path: Path, lang: str, text: str) -> None:
    exit_file(0).write(tmp_path, ended(0, -15))
    assert text in str(describe_end(tmp_path, 3, 29500, lang, slurm=True))
    assert describe_end(tmp_path, 3, 29500, lang) == "worker 0 was ended by SIGTERM"
