"""Helpers for tests of hostile input: anything that strangers, other machines or other people's
files may send. Random input must be answered with one line, in time, with little memory, and
without a trace outside the target's own folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

#: Limits of one case: seconds, and bytes of memory that remain allocated.
MOST_S, MOST_BYTES = 10.0, 256 * 2**20


def cases(ordinary: int, thorough: int) -> pytest.MarkDecorator:
    """Parametrize a test's argument ``count``: a small number by default, a large one with
    ``--slow``."""
    slow = pytest.mark.slow(f"{thorough} cases more of the same kind")
    more = pytest.param(thorough, marks=[slow, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("count", [ordinary, more])


def try_cases(count: int, case: Callable[[Callable[..., Any]], None]) -> None:
    """Call ``case(draw)`` with ``count`` draws, the same ones in every run.

    Raises:
        AssertionError: a case took too long or too much memory; what `hypothesis` keeps of all
            cases does not count.
    """

    @seed(count)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one_case(data: Any) -> None:
        begin, before = time.monotonic(), resident()
        case(data.draw)
        took = time.monotonic() - begin
        assert took < MOST_S, f"a case took {took:.1f} s"
        assert resident() - before < MOST_BYTES

    with no_tracebacks():
        one_case()


@contextlib.contextmanager
def no_tracebacks() -> Iterator[None]:
    """Fail if a thread ends with an exception, which would print a traceback to somebody's
    terminal."""
    found, usual = list[str](), threading.excepthook

    def note(ended: threading.ExceptHookArgs) -> None:
        found.append("".join(traceback.format_exception(ended.exc_value))[-3000:])

    threading.excepthook = note
    try:
        yield
    finally:
        threading.excepthook = usual
    assert not found, found[0]


def entries(folder: Path, *without: Path) -> dict[str, tuple[int, int]]:
    """Return every path below a folder with its size and mtime, to detect writes; ``without`` is
    skipped."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and not any(path.is_relative_to(other) for other in without)
    }


def resident() -> int:
    """Return the resident memory of this process in bytes, 0 if the system does not report it."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
