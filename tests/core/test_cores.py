"""Threads and cores next to other load: busy cores are detected, and explicit settings are
respected."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dualml.common import cores, machine


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", *cores.AFFINITY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "USABLE", [0, 1, 2, 3])
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "physical_cores", lambda: 4)


QUIET, BESIDE = (0.0, 0.1, 0.0, 0.0), (0.9, 0.0, 0.8, 0.1)


@pytest.mark.parametrize(
    ("core", "own", "others"), [(0.5, 0.5, 0.5), (0.5, 1.0, 0.0), (0.25, 1.0, 0.0), (1.0, 0.0, 2)]
)
def test_what_this_process_computes_is_not_others(
    monkeypatch: pytest.MonkeyPatch, core: float, own: float, others: float
) -> None:
    told = iter([[0.0, 1.0, 5.0, 6.0], [1.0, 1.0 + own, 5.0 + core, 6.0 + core]])
    monkeypatch.setattr(cores, "cpu_times", lambda: next(told))
    assert sum(cores.CpuLoadMonitor().busy_fractions()) == others


@pytest.mark.parametrize(
    ("busy", "threads"), [(0.0, 4), (0.1, 4), (0.25, 3), (0.6, 2), (0.98, 1), (1.5, 1)]
)
def test_a_thread_for_each_core_that_others_leave(busy: float, threads: int) -> None:
    assert cores.available_threads([busy] * 4) == threads


def test_the_users_number_of_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores.available_threads(BESIDE) == 3


@pytest.mark.parametrize(
    ("threads", "busy", "crowded", "told"),
    [
        (4, QUIET, False, "0 1 2 3"),
        (3, QUIET, False, None),
        (2, BESIDE, False, None),
        (4, QUIET, True, None),
        (2, BESIDE, True, "1 3"),
        (1, (), True, None),
    ],
)
def test_threads_have_cores_where_it_pays(
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    busy: tuple[float, ...],
    crowded: bool,
    told: str | None,
) -> None:
    assert cores.affinity_env(threads, busy, crowded).get("GOMP_CPU_AFFINITY") == told
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    assert cores.affinity_env(threads, busy, crowded) == {}


@pytest.mark.parametrize(
    ("ranks", "threads", "busy", "crowded", "held"),
    [
        (2, 1, QUIET, False, 1),
        (2, 2, QUIET, True, 2),
        (2, 1, BESIDE, False, 0),
        (2, 1, BESIDE, True, 0),
        (4, 1, BESIDE, True, 1),
        (2, 2, BESIDE, False, 0),
    ],
)
def test_ranks_are_held_where_it_pays(
    ranks: int, threads: int, busy: tuple[float, ...], crowded: bool, held: int
) -> None:
    assert cores.cores_per_rank(ranks, threads, busy, crowded) == held


def test_a_process_that_computes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as spins:
        try:
            assert spins.stdout is not None
            spins.stdout.readline()
            assert sum(cores.CpuLoadMonitor().busy_fractions()) > 0.4
        finally:
            spins.kill()
