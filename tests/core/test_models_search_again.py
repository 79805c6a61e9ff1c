"""A search whose process was killed continues without the changes that killed it."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dualml.backend import backends
from dualml.launch.supervise import GroupResult
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.trial_guard import (
    GUARD,
    SLOTS,
    RefusedTrialError,
    TrialGuard,
    count_killed,
    open_guard,
    read_trials,
    suspect_trials,
    trial_kind,
)
from dualml.parity.models import side_processes
from dualml.parity.models.sides import ResolvedSide

FORKS = pytest.mark.skipif(
    sys.platform != "linux", reason="suspects are refused unless it can fork"
)


def change(name: str, value: int = 0) -> Mutation:
    return Mutation("attribute", "set", (1,), name, "dim", value)


@pytest.mark.parametrize(("codes", "found"), [([-11, 0], True), ([-11] * 4, False)])
def test_a_search_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int], found: bool
) -> None:
    left = iter(codes)
    seen: list[dict[str, list[str]]] = []
    seconds: list[float] = []

    def supervise(launches: Any, tell: Any, **limits: Any) -> GroupResult:
        path = tmp_path / GUARD
        seen.append(json.loads(path.read_text()) if path.exists() else {})
        seconds.append(float(launches[0].command[-1]))
        guard = open_guard(tmp_path)
        with guard.trial(change(f"f{len(seen)}")):
            code = next(left)
        if not code:
            (tmp_path / side_processes.RESULT).write_text(json.dumps({"equal": True}))
        return GroupResult(results={}, code=code, rank=0, reason=None)

    monkeypatch.setattr(side_processes, "supervise", supervise)
    explanation = side_processes.search_causes(
        tmp_path, ResolvedSide("a", backends()["torch"], {}), 10.0, 40.0
    )
    assert (explanation is not None) == found
    assert len(seen) == len(codes)
    kinds = [f"set f{n} dim" for n in range(1, len(codes))]
    for n, guard in enumerate(seen[1:], 1):
        assert guard == {"suspects": kinds[:n], "refused": []}
    assert seconds[0] == 40.0
    assert all(5.0 <= one <= 40.0 for one in seconds[1:])


def test_a_search_that_noted_nothing_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def supervise(launches: Any, tell: Any, **limits: Any) -> GroupResult:
        runs.append(1)
        return GroupResult(results={}, code=-9, rank=0, reason=None)

    monkeypatch.setattr(side_processes, "supervise", supervise)
    side = ResolvedSide("a", backends()["torch"], {})
    assert side_processes.search_causes(tmp_path, side, 10.0, 40.0) is None
    assert len(runs) == 1


@FORKS
def test_a_suspect_that_kills_its_process_is_refused_and_counted(tmp_path: Path) -> None:
    open_guard(tmp_path)
    kind = trial_kind(change("f"))
    guard = TrialGuard(tmp_path, frozenset({kind}))
    parent, done = os.getpid(), []

    def attempt(value: int) -> None:
        with guard.trial(change("f", value)):
            done.append(value)
            if value == 3:
                assert os.getpid() != parent, "it was tried in the search itself"
                os.kill(os.getpid(), 9)
            if value == 4:
                raise ValueError("the framework refuses it")

    attempt(1)
    for _ in range(2):
        with pytest.raises(RefusedTrialError):
            attempt(3)
    with pytest.raises(ValueError, match="refuses"):
        attempt(4)
    attempt(1)
    assert done == [1, 4, 1]
    assert count_killed(tmp_path) == 1


@FORKS
def test_memory_that_was_written_over_kills_a_process_of_its_own(tmp_path: Path) -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    guard = TrialGuard(tmp_path, frozenset({trial_kind(change("f"))}))

    def attempt() -> None:
        with guard.trial(change("f")):
            faulthandler.disable()  # a process of its own: its death is wanted
            blocks = [library.malloc(4000) for _ in range(8)]
            ctypes.memset(blocks[3], 0xFF, 8000)  # 4000 bytes too many
            for block in blocks:
                library.free(block)

    with pytest.raises(RefusedTrialError):
        attempt()


def test_what_kills_the_search_again_is_refused(tmp_path: Path) -> None:
    guard = open_guard(tmp_path)
    for n in range(2 * SLOTS):
        with guard.trial(change(f"f{n}")):
            pass
    assert len(read_trials(tmp_path)) == SLOTS
    last = f"set f{2 * SLOTS - 1} dim"
    assert last in read_trials(tmp_path)
    assert suspect_trials(tmp_path)
    guard = open_guard(tmp_path)
    assert last in guard.suspects
    with guard.trial(change(f"f{2 * SLOTS - 1}")):
        pass
    assert suspect_trials(tmp_path)
    guard = open_guard(tmp_path)
    assert guard.refused == {last}
    assert last not in guard.suspects
    with pytest.raises(RefusedTrialError), guard.trial(change(f"f{2 * SLOTS - 1}")):
        pass
    assert count_killed(tmp_path) == 1
    assert not suspect_trials(tmp_path)
