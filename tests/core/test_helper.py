"""The process that a launcher starts beside the ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Too late for a rank that is not there yet.
LATE = """
from dualml.launch import helper
helper.COME_S = 0
input()
print(helper.still_there({}), flush=True)
input()
"""


@pytest.mark.parametrize("ranks", [0, 1])
def test_ranks_that_are_there_are_seen_however_late(ranks: int) -> None:
    """On a busy machine this process takes longer to start than the ranks have."""
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
            process.communicate()
