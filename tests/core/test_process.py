"""Forked workers are real processes: they end like any other, and with their owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from dualml.launch import process as launching
from dualml.launch.process import (
    Launch,
    close_other_servers,
    close_servers,
    server_key,
    servers,
    start_servers,
)
from dualml.launch.supervise import supervise

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked"),
]

#: A worker that reports its process id; a word tells it how to end.
WORKER = """
import os, sys, time
from dualml.launch.child import report_to_owner
import json.tool, colorsys  # the latter is loaded before the fork

def work(emit):
    if sys.argv[1] == "dies":
        os._exit(7)
    if sys.argv[1] == "waits":
        emit(phase="waits")
        time.sleep(600)
    colorsys.seen = getattr(colorsys, "seen", 0) + 1
    return {"pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0),
            "seen": colorsys.seen, "mark": os.environ["MARK"], "words": sys.argv[1:]}

with report_to_owner() as emit:
    emit.result = work(emit)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workers_of_test.py").write_text(WORKER, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    close_servers()


def launch(tmp_path: Path, word: str, mark: str = "1") -> Launch:
    command = [sys.executable, "-m", "workers_of_test", word]
    return Launch(command, {"MARK": mark}, tmp_path / "log", ("colorsys",))


def run(*launches: Launch):
    return supervise(launches, lambda rank, event: None, limit=60, silence=60)


def test_each_is_a_process_of_its_own_from_one_server(tmp_path: Path) -> None:
    ended = run(launch(tmp_path, "a"), launch(tmp_path, "b"))
    again = run(launch(tmp_path, "c"))
    results = [ended.results[0], ended.results[1], again.results[0]]
    assert [r["words"] for r in results] == [["a"], ["b"], ["c"]]
    assert len({r["pid"] for r in results}) == 3
    assert all(r["session"] == r["pid"] for r in results)
    (server,) = servers.values()
    assert {r["parent"] for r in results} == {server.process.pid}
    assert [r["seen"] for r in results] == [1, 1, 1]  # nothing is left of one in the next


def test_another_environment_has_another_server(tmp_path: Path) -> None:
    marks = [run(launch(tmp_path, "a", mark)).results[0]["mark"] for mark in "1231"]
    assert (marks, len(servers)) == (list("1231"), 3)
    for mark in "456":
        run(launch(tmp_path, "a", mark))
    assert len(servers) == launching.MAX_SERVERS


def test_exit_codes_and_signals_are_those_of_the_process(tmp_path: Path) -> None:
    assert run(launch(tmp_path, "dies")).code == 7

    def kill(rank: int, event: dict[str, object]) -> None:
        (server,) = servers.values()
        for child in psutil.Process(server.process.pid).children():
            child.send_signal(signal.SIGKILL)

    ended = supervise([launch(tmp_path, "waits")], kill, limit=60, silence=60)
    assert ended.code == -signal.SIGKILL


def test_a_server_that_is_killed_takes_its_workers_along_and_is_replaced(tmp_path: Path) -> None:
    def kill(rank: int, event: dict[str, object]) -> None:
        (server,) = servers.values()
        server.process.kill()

    ended = supervise([launch(tmp_path, "waits")], kill, limit=60, silence=60)
    assert ended.code == -signal.SIGKILL
    assert run(launch(tmp_path, "a")).code == 0


def test_a_server_that_cannot_start_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "IMPORT_S", 0.0)
    result = run(launch(tmp_path, "a")).results[0]
    assert (result["words"], result["parent"], servers) == (["a"], os.getpid(), {})


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(launching.SWITCH, "0")
    assert run(launch(tmp_path, "a")).results[0]["parent"] == os.getpid()


def test_nothing_is_left_of_an_owner_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dualml.launch.process import Launch\n"
        "from dualml.launch.supervise import supervise\n"
        "one = Launch([sys.executable, '-m', 'workers_of_test', 'waits'], {'MARK': '1'},"
        " Path('log'), ('colorsys',))\n"
        "supervise([one], lambda rank, event: print('at work', flush=True), limit=60, silence=60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "at work\n"
            started = psutil.Process(owner.pid).children(recursive=True)
            assert len(started) == 2
            time.sleep(0.2)
        finally:
            owner.kill()
    _, left = psutil.wait_procs(started, timeout=5)
    assert left == []


def test_a_process_number_that_comes_again_is_another_process() -> None:
    server = launching.ForkServer.__new__(launching.ForkServer)
    server.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.lock, server.codes, server.living = threading.Lock(), {}, set()
    deadline = time.monotonic() + 5
    with theirs, server.channel:
        for code in (3, 0):
            theirs.send(b'{"pid": 77}')
            assert server.read_answer(deadline, new=True) == 77
            assert not server.idle
            assert server.exit_code(77, time.monotonic()) is None  # not that of the one before
            theirs.send(b'{"pid": 77, "code": %d}' % code)
            assert server.exit_code(77, deadline) == code
            assert server.idle


def test_two_servers_import_at_the_same_time(tmp_path: Path) -> None:
    launches = [launch(tmp_path, word, mark) for word, mark in (("a", "1"), ("b", "2"))]
    start_servers(launches)
    waiting = [server.process.pid for server in servers.values()]
    assert len(waiting) == 2  # before the first fork, which waits for an import
    ended = run(*launches)
    assert [ended.results[i]["parent"] for i in (0, 1)] == waiting


def test_servers_of_other_processes_are_ended_when_idle(tmp_path: Path) -> None:
    launches = [launch(tmp_path, "a", mark) for mark in "12"]
    run(*launches)
    ours = servers[server_key(launches[1], {**os.environ, **launches[1].environ})]
    close_other_servers(launches[1])
    assert list(servers.values()) == [ours]
    assert ours.process.poll() is None
