"""Processes that tests start end with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
left: list[int] = []


@pytest.mark.parametrize("own_session", [False, True])
def test_a_test_leaves_a_process(own_session: bool) -> None:
    left.append(subprocess.Popen(SLEEP, start_new_session=own_session).pid)


def test_they_were_ended() -> None:
    assert len(left) == 2
    assert all(map(has_ended, left))


def test_a_group_without_its_leader_is_ended() -> None:
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert leader.stdout is not None
    left.append(int(leader.stdout.readline()))
    leader.wait(10)
    os.kill(left[-1], signal.SIGCONT)  # it is there


def test_that_one_was_ended_too() -> None:
    assert has_ended(left[-1])


def has_ended(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False
