"""Ranks started by a launcher: the events their owner receives, and that nothing outlives it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dualml.backend import Launcher
from dualml.common.errors import UserError
from dualml.launch import launcher
from dualml.launch.launcher import LauncherProcess
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.supervise import GroupResult, supervise

pytestmark = pytest.mark.system

#: A launcher whose ranks are threads of one process, each with its connection.
RANKS = """
import json, socket, sys, threading, time
path, wanted, started = sys.argv[1], sys.argv[-2], int(sys.argv[-1])
def rank(number):
    owner = socket.socket(socket.AF_UNIX)
    owner.connect(path)
    def say(**event):
        owner.sendall((json.dumps(event) + "\\n").encode())
    say(rank=number, size=started)
    say(phase="train", done=number, total=9)
    if wanted == "hang":
        time.sleep(1000)
    if wanted == "fail" and number == 1:
        say(event="result", status="failed", reason="a planted error", kind="ValueError")
    elif wanted != "die" or number == 0:
        say(event="result", status="ok", reason=None, value=number)
    owner.close()
threads = [threading.Thread(target=rank, args=(n,)) for n in range(started)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def run(folder: Path, script: str, *words: str, size: int = 2, **limits: float) -> Any:
    def command(size: int, module: str, given: Sequence[str]) -> list[str]:
        assert module == "dualml.runner.worker.hosted"
        return [sys.executable, "-c", script, *given]

    heard: list[tuple[int, Any]] = []
    host = LauncherProcess(Launcher(command), size, words, {}, folder / "log")
    try:
        ended = supervise(
            host.make_ranks(),
            lambda rank, event: heard.append((rank, event.get("done"))),
            **{"limit": 30.0, "silence": 30.0, **limits},
        )
    finally:
        host.close()
    assert host.process is not None
    assert host.process.poll() is not None
    assert not host.folder.exists()
    return ended, sorted(heard)


def test_every_rank_is_heard(tmp_path: Path) -> None:
    ended, heard = run(tmp_path, RANKS, "well", "2")
    assert (ended.code, ended.reason) == (0, None)
    assert heard == [(0, 0), (1, 1)]
    assert {rank: result["value"] for rank, result in ended.results.items()} == {0: 0, 1: 1}


def test_a_launcher_that_starts_one_process_for_two_is_not_waited_for(tmp_path: Path) -> None:
    begin = time.monotonic()
    ended, heard = run(tmp_path, RANKS, "well", "1")
    assert (ended.code, heard, list(ended.results)) == (0, [(0, 0)], [0])
    assert time.monotonic() - begin < 10


def test_the_rank_that_failed_is_named(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, RANKS, "fail", "2")
    assert (ended.rank, ended.results[1]["reason"]) == (1, "a planted error")


def test_a_rank_that_dies_without_a_word(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, RANKS, "die", "2")
    assert (ended.rank, ended.code) == (1, 1)


def test_ranks_that_hang_are_ended(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, RANKS, "hang", "2", silence=1.0)
    assert ended.reason == "gave no sign of life for 1 s"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import time; time.sleep(1000)", "this rank did not come within 1 s"),
        ("raise SystemExit(3)", "the launcher ended with exit code 3 before this rank came"),
    ],
)
def test_a_launcher_whose_ranks_never_come(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "COME_S", 1.0)
    ended: GroupResult = run(tmp_path, script)[0]
    assert ended.results[ended.rank]["reason"] == reason
    assert ended.code == 1


def test_a_rank_sends_nothing_but_files(tmp_path: Path) -> None:
    """A rank sends regular files only: a pipe with the name of its log would block forever."""
    folder = tmp_path / "trial"
    folder.mkdir()
    os.mkfifo(folder / "rank1.log")
    remote = RemoteRunFolder.__new__(RemoteRunFolder)
    remote.run, remote.uploaded, remote.seat = tmp_path, {}, SimpleNamespace(rank=1)
    with pytest.raises(UserError, match="pipe"):
        remote.upload(folder)
    (folder / "rank1.log").unlink()
    remote.upload(folder)
