"""Jobs in a real Slurm: a controller and two nodes on this machine, with a private
configuration."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conformance.backends import require
from running import dualml, losses, trials
from test_machines import TOML, address

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo")
CONFIG = """
ClusterName=dualmltest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
EnforcePartLimits=ALL
MpiDefault=none
NodeName=a NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=2000
NodeName=b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=2000
PartitionName=p Nodes=a,b Default=YES MaxTime=30 State=UP
"""


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the variables by which Slurm's commands find the controller."""
    if missing := [name for name in PROGRAMS if program(name) is None]:
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)} (Debian: slurm-wlm, munge)")
    if os.geteuid():
        pytest.skip("Slurm's daemons need root")
    folder = tmp_path_factory.mktemp("slurm")
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)  # munged looks at who could change its socket
    host = socket.gethostname().partition(".")[0]
    with contextlib.suppress(OSError):
        socket.gethostbyname(host)
    ports = [address().rpartition(":")[2] for _ in range(3)]
    (folder / "state").mkdir()
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, ports=ports))
    env = {**os.environ, "SLURM_CONF": str(config)}
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    account = "munge" if any(user.pw_name == "munge" for user in pwd.getpwall()) else "root"
    shutil.chown(key, account)
    shutil.chown(folder, account)
    started = list[subprocess.Popen[bytes]]()

    def start(*words: object) -> None:
        log = (folder / "daemons.log").open("ab")
        given, nothing = [str(word) for word in words], subprocess.DEVNULL
        started.append(subprocess.Popen(given, env=env, stdin=nothing, stdout=log, stderr=log))

    munged = [
        program("munged"),
        "--foreground",
        "--force",
        f"--key-file={key}",
        f"--socket={folder}/munge.socket",
        f"--pid-file={folder}/munge.pid",
        f"--log-file={folder}/munge.log",
        f"--seed-file={folder}/munge.seed",
    ]
    su = ["runuser", "-u", account, "--"] if account != "root" else []
    try:
        start(*su, *munged)
        wait(lambda: (folder / "munge.socket").exists(), 20, folder)
        start(program("slurmctld"), "-D", "-f", config)
        for node in ("a", "b"):
            start(program("slurmd"), "-D", "-N", node, "-f", config)

        def idle() -> bool:
            words = ["sinfo", "--noheader", "--format=%D %T"]
            done = subprocess.run(
                words, env=env, capture_output=True, text=True, timeout=20, check=False
            )
            return "2 idle" in done.stdout

        wait(idle, 60, folder)
        yield {"SLURM_CONF": str(config)}
        words = ["scancel", "--user=root"]
        subprocess.run(words, env=env, timeout=20, check=False)
        wait(lambda: not steps(config), 30, folder)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        for process in steps(config):
            process.kill()


def steps(config: Path) -> list[psutil.Process]:
    """Return what the nodes have started: a process for each step, and its tasks."""
    found, begin = [], config.stat().st_mtime
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "slurmstepd" and process.create_time() > begin:
                found.append(process)
            elif (env := process.environ()).get("SLURM_CONF") == str(config):
                found += [process] if "SLURM_JOB_ID" in env else []
    return found


def wait(condition: Callable[[], Any], seconds: float, folder: Path) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            logs = [*folder.glob("*.log"), *folder.glob("jobs/*/log")]
            raise AssertionError("\n".join(path.read_text()[-2000:] for path in logs))
        time.sleep(0.2)
    return found


@pytest.fixture
def queue(
    slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return a function that runs commands in a private folder and returns their JSON output."""
    for name, value in {
        **slurm,
        "DUALML_JOBS": str(tmp_path / "jobs"),
        "DUALML_CHECKPOINT_S": "0.2",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "lab.toml").write_text(TOML)

    def run(*words: object) -> Any:
        command = dualml(words[0], "--json", *words[1:])
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return run


def status(queue: Callable[..., Any], number: int) -> str:
    rows = queue("jobs")["jobs"]
    return str(next(row["status"] for row in rows if row["id"] == number))


RUN = ["submit", "lab.toml", "--on", "slurm", "--backend", "torch", "--arm", "ring", "--no-report"]


def test_ranks_on_two_nodes(queue: Callable[..., Any], tmp_path: Path) -> None:
    require("torch")
    told = queue(*RUN, "--nodes", 2, "--time", "10")
    assert told["slurm"].isdecimal(), told
    assert told["out"] == str(tmp_path / "runs/tiny-machines-job1")
    wait(lambda: status(queue, 1) not in ("queued", "running"), 180, tmp_path)
    assert status(queue, 1) == "ok", (tmp_path / "jobs/1/log").read_text()
    (trial,) = trials(Path(told["out"])).values()
    assert (trial["status"], trial["world_size"]) == ("ok", 2)
    assert "rank 1 of 2 is part of the run" in (tmp_path / "jobs/1/log").read_text()
    assert not [
        p
        for p in (tmp_path / "jobs").rglob("*")
        if p.is_file() and b"DUALML_TOKEN" in p.read_bytes()
    ]
    alone = dualml(
        "run", "lab.toml", "--backend", "torch", "--arm", "ring", "--no-report", "--out", "alone"
    )
    subprocess.run(alone, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    mine, whole = (
        losses(Path(told["out"]), "ring", "torch"),
        losses(tmp_path / "alone", "ring", "torch"),
    )
    assert mine == pytest.approx(whole, rel=1e-6)


def test_a_job_that_is_stopped_goes_on(queue: Callable[..., Any], tmp_path: Path) -> None:
    require("torch")
    long = ["--set", "arms.ring.updates=50000"]
    out = Path(queue(*RUN, "--nodes", 2, *long)["out"])
    second = queue(*RUN, "--nodes", 2)
    place = out / "trials/ring/torch/seed0"
    wait(lambda: (place / "checkpoint.safetensors").exists(), 120, tmp_path)
    assert status(queue, 1) == "running"
    assert status(queue, second["id"]) == "queued"  # both nodes are taken
    assert queue("stop", 1)["status"] == "stopped"
    wait(lambda: status(queue, second["id"]) == "ok", 120, tmp_path)
    length = (place / "rank0.jsonl").stat().st_size
    assert queue("resume", 1)["status"] == "queued"
    wait(lambda: (place / "rank0.jsonl").stat().st_size > length, 120, tmp_path)
    assert "starting again" not in (place / "rank0.log").read_text()
    assert status(queue, 1) == "running"
    assert queue("stop", 1)["status"] == "stopped"


#: Worker 0 waits for a message of the others; needs no framework.
MEET = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as door:
        print("heard of", sorted(int(door.accept()[0].recv(8)) for _ in range(size - 1)))
else:
    for _ in range(600):
        try:
            with socket.create_connection(place) as way:
                way.sendall(str(rank).encode())
                break
        except OSError:
            time.sleep(0.1)
print("on node", os.environ["SLURM_NODEID"], "local rank", os.environ["LOCAL_RANK"])
"""
COMMAND = ["submit", "--on", "slurm", "--nodes", 2, "--workers", 2]


def wait_for_end(queue: Callable[..., Any], number: int, folder: Path) -> Any:
    """Wait until a job has ended and return its status."""
    wait(lambda: status(queue, number) not in ("queued", "running"), 180, folder)
    return queue("status", number)


def test_a_command_on_two_nodes(queue: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(MEET)
    told = queue(*COMMAND, "--name", "meeting", "--", sys.executable, "run.py")
    assert told["name"] == "meeting", told
    row = wait_for_end(queue, 1, tmp_path)
    assert (row["status"], row["reason"]) == ("ok", None), (tmp_path / "jobs/1/log").read_text()
    logs = [queue("logs", "meeting", "--rank", rank)["lines"] for rank in (0, 1)]
    assert logs == [["heard of [1]", "on node 0 local rank 0"], ["on node 1 local rank 0"]]
    assert [(end["rank"], end["code"]) for end in row["ends"]] == [(0, 0), (1, 0)]
    assert not [
        p
        for p in (tmp_path / "jobs").rglob("*")
        if p.is_file() and b"DUALML_TOKEN" in p.read_bytes()
    ]


def test_a_command_whose_workers_fail_or_ignore_their_rank(
    queue: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "same.py").write_text("print('loss 0.5')")
    queue(*COMMAND, "--", sys.executable, "same.py")
    code = "import os, sys, time; sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)"
    queue(*COMMAND, "--", sys.executable, "-c", code)
    row = wait_for_end(queue, 1, tmp_path)
    assert row["status"] == "ok"
    assert "the script seems to ignore its rank" in row["reason"]
    begin = time.monotonic()
    row = wait_for_end(queue, 2, tmp_path)
    assert time.monotonic() - begin < 120
    assert (row["status"], row["code"]) == ("failed", 7)
    assert row["reason"] == "worker 1 ended with exit code 7"
    told = queue("resume", 2)
    assert "is a command, and dualml cannot go on with one" in told


def test_a_worker_that_left_no_record_is_named(queue: Callable[..., Any], tmp_path: Path) -> None:
    """Kill the process that watches rank 1, which takes the worker with it, as soon as rank 0 is
    there: Slurm ends what still starts with 143, and no record either."""
    (tmp_path / "run.py").write_text(
        "import os, pathlib, time\n"
        "started = pathlib.Path('started')\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not started.exists(): time.sleep(0.05)\n"
        "    os.kill(os.getppid(), 9)\n"
        "started.touch()\n"
        "time.sleep(600)\n"
    )
    queue(*COMMAND, "--", sys.executable, "run.py")
    row = wait_for_end(queue, 1, tmp_path)
    assert (row["status"], row["code"]) == ("failed", 128 + 9)
    assert "left no record of how they ended: 1;" in row["reason"]


def test_a_job_that_waits_for_too_long_and_one_that_is_stopped(
    queue: Callable[..., Any], tmp_path: Path
) -> None:
    mark = f"endless {tmp_path}"
    endless = [sys.executable, "-c", "import time; time.sleep(600)", mark]
    queue(*COMMAND, "--", *endless)
    wait(lambda: status(queue, 1) == "running", 60, tmp_path)
    wait(lambda: len(marked(mark)) == 2, 60, tmp_path)
    queue(*COMMAND, "--time", "1", "--wait-at-most", 1, "--", sys.executable, "-c", "1")
    row = wait_for_end(queue, 2, tmp_path)
    assert (row["status"], row["reason"]) == (
        "stopped",
        "waited for longer than 1 s (--wait-at-most)",
    )
    assert queue("stop", 1)["status"] == "stopped"
    wait(lambda: not marked(mark), 60, tmp_path)


def marked(mark: str) -> list[psutil.Process]:
    """Return the workers with a word of a test on their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [process] if process.cmdline()[-1:] == [mark] else []
    return [process for process in found if "dualml.runner.jobs.workers" not in process.cmdline()]


def test_what_slurm_refuses_is_said_in_its_words(queue: Callable[..., Any], tmp_path: Path) -> None:
    require("torch")
    told = queue(*RUN, "--nodes", 9)
    assert isinstance(told, str)
    assert len(told.splitlines()) == 1
    assert "was refused by Slurm: " in told
    told = queue(*RUN, "--partition", "nosuch")
    assert "invalid partition specified: nosuch" in told
    assert queue("jobs")["jobs"] == []


def test_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("torch")
    monkeypatch.setenv("DUALML_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "lab.toml").write_text(TOML)
    done = subprocess.run(
        dualml(*RUN), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "there is no sbatch on this machine" in done.stderr
