"""The helper process that a launcher starts next to the ranks."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dualml.backend import ExternalLaunch
from dualml.experiment.store.sessions import Announcement, announce
from dualml.launch import helper

#: Seconds after which a rank that has not started is too late.
LATE = """
from dualml.launch import helper
helper.COME_S = 0
input()
print(helper.any_rank_alive({}), flush=True)
input()
"""


@pytest.mark.parametrize("ranks", [0, 1])
def test_ranks_that_are_there_are_seen_however_late(ranks: int) -> None:
    """Ranks that already run are found however late the helper starts, as on a busy machine."""
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([sys.executable, "-c", LATE], stdin=pipe, stdout=pipe, text=True)
        for _ in range(1 + ranks)
    ]
    try:
        first = processes[0]
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == f"{ranks > 0}\n"
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=10)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_run_that_goes_on_has_announcements_that_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """A resumed run ignores the end that its first start left in the folder: the helper stays as
    long as there are ranks."""
    announce(tmp_path, 0, Announcement(places=None))
    seen = iter([True, True, False])
    monkeypatch.setattr(helper, "any_rank_alive", lambda ranks: next(seen))
    waits = (sys.executable, "-c", "input()")
    launcher = ExternalLaunch("msrun", "mindspore", -1, 2, helper=waits)
    begin = time.monotonic()
    helper.run_helper(launcher, None if goes_on else tmp_path, {}, wait=60)
    assert next(seen, None) is (None if goes_on else True)
    assert time.monotonic() - begin < 30
