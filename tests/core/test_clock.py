"""Timers wait for the device, and published times are the timers' readings."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dualml.backend import backends
from dualml.backend.reference.communicator import run_threads
from dualml.common.clock import EVENTS, WALL, start_wall_clock
from dualml.experiment.arm import make_arm
from dualml.experiment.store.costs import COLLECTIVES
from dualml.runner.worker.collectives import time_collectives


def test_the_wall_clock_is_read_when_the_device_has_nothing_left_to_do() -> None:
    waits = iter((0.2, 0.05))  # what was queued before, and what is timed
    elapsed = start_wall_clock(lambda: time.sleep(next(waits)))
    assert 0.05 <= elapsed() < 0.2
    assert next(waits, None) is None


@pytest.mark.parametrize("clock", [WALL, EVENTS])
def test_a_benchmark_of_collectives_takes_its_times_from_the_stopwatch(
    clock: str, tmp_path: Path
) -> None:
    arm = make_arm(
        kind="collectives", world_size=2, sizes=[1024], strategies=["ring"], seconds=0.01
    )

    def work(comm: object) -> dict:
        comm.clock, comm.stopwatch = clock, lambda: lambda: 0.125
        return time_collectives(arm, comm, tmp_path, lambda **told: None)

    found = run_threads(2, work)
    record = COLLECTIVES.read(tmp_path)
    assert record.clock == clock
    assert [told["clock"] for told in found] == [clock, clock]
    assert [row.seconds for row in record.rows] == [0.125]


def test_the_reference_reads_the_wall_clock() -> None:
    backend = backends()["numpy"].create("cpu", 1)
    assert backend.clock == WALL
    elapsed = backend.stopwatch()
    time.sleep(0.02)
    assert elapsed() >= 0.02
