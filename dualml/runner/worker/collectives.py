"""Micro-benchmark of the collectives: every strategy on vectors of every size, verified, timed and
counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.common.errors import TrialError
from dualml.experiment.arm import Arm
from dualml.experiment.store.costs import COLLECTIVES
from dualml.parallel.aggregation import strategy

MIN_REPEATS, MAX_REPEATS = 3, 60  # minimum and maximum repetitions of one measurement
#: Counters of a rank's network interface, including all headers.
PORT = ("bytes_sent", "packets_sent", "bytes_received", "packets_received")
PERIOD = 7  # the vectors hold small integers, whose sums are exact in every order


def time_collectives(
    arm: Arm, comm: Communicator | None, folder: Path, emit: Callable[..., None]
) -> dict[str, Any]:
    """Measure all strategies and sizes of an arm; rank 0 writes the rows to ``collectives.json``.

    All ranks call it. The result is the trial's summary, without the rows.

    Args:
        arm: with ``strategies``, ``sizes`` (bytes) and ``seconds``.
        comm: the process group; None for a single rank, which is refused.
        folder: of the trial.
        emit: called with the progress after each measurement.

    Raises:
        TrialError: the result of a strategy is wrong, or there is a single rank.
    """
    if comm is None:
        raise TrialError("kind = collectives needs world_size >= 2: one rank sends nothing")
    rows: list[dict[str, Any]] = []
    per_machine = comm.ranks_per_machine()
    jobs = [(size, name) for size in arm.sizes for name in arm.strategies]
    for number, (size, name) in enumerate(jobs):
        rows.append(measure_strategy(comm, name, size, arm.seconds))
        comm.forget_scratch()  # otherwise buffers of every size would accumulate
        emit(phase="collectives", done=number + 1, total=len(jobs))
    copies = {str(size): copy_seconds(size) for size in arm.sizes}
    if comm.rank == 0:
        measured = {
            "backend": comm.backend,
            "device": comm.device,
            "world_size": comm.size,
            "clock": comm.clock,
            "rows": rows,
            "copy_s": copies,
        }
        if per_machine != comm.size:  # several machines
            measured |= {"per_machine": per_machine, "engine": comm.engine}
        COLLECTIVES.write(folder, COLLECTIVES.make_record(measured))
    uses = dict.fromkeys(use for name in arm.strategies for use in strategy(name).uses)
    how = {use: str(comm.implementation_of(use)) for use in uses}
    return {"world_size": comm.size, "how": how, "clock": comm.clock, "measurements": len(rows)}


def measure_strategy(comm: Communicator, name: str, nbytes: int, seconds: float) -> dict[str, Any]:
    """Measure one aggregation strategy on vectors of one size, after a check of its result; all
    ranks call it.

    Args:
        comm: the process group.
        name: of the strategy.
        nbytes: size of the float32 vector that is aggregated.
        seconds: target duration of all repetitions, of which there are 3 to 60.

    Returns:
        A row of ``collectives.json``: the seconds from a common start until the last rank has the
        result (median and quartiles), and each rank's traffic.

    Raises:
        TrialError: the result is wrong, see `verify_sum`.
    """
    way, length = strategy(name), nbytes // 4
    whole = np.arange(length, dtype=np.float32) % PERIOD
    own = comm.tensor(whole + comm.rank)

    def run_once() -> tuple[float, Any]:
        """Run the strategy once; return the seconds this rank took and the result."""
        x = comm.copy(own)
        comm.barrier()
        elapsed = comm.stopwatch()
        total = way.sum(comm, x)
        return elapsed(), total

    _, total = run_once()
    verify_sum(comm, name, whole, total)
    comm.traffic.reset()
    first, _ = run_once()
    counted = comm.traffic.describe()
    # The traffic of the barrier does not belong to the strategy; native barriers are not counted.
    repeats = broadcast_repeats(
        comm, int(np.clip(seconds / max(first, 1e-6), MIN_REPEATS, MAX_REPEATS))
    )
    comm.barrier()  # until then, another rank may still receive what this one has sent
    before = interface_counts(comm.context.interface)
    spent = np.array([run_once()[0] for _ in range(repeats)])
    comm.barrier()
    after = interface_counts(comm.context.interface)
    moved_here = None if before is None or after is None else (after - before) / repeats
    parts = comm.all_gather(comm.tensor(spent))
    slowest = np.max([comm.numpy(part) for part in parts], axis=0)
    low, median, high = np.percentile(slowest, [25, 50, 75])
    away = bool(comm.context.interface) and moved_here is not None
    ports = [comm.numpy(p) for p in comm.all_gather(comm.tensor(moved_here))] if away else []
    moved = ("sent", "received", "bytes_sent", "bytes_received", "calls", "payload")
    own_counts = np.array([counted[key] for key in moved], np.int64)
    ranks = [comm.numpy(part) for part in comm.all_gather(comm.tensor(own_counts))]
    return {
        "strategy": name,
        "bytes": nbytes,
        "seconds": float(median),
        "low": float(low),
        "high": float(high),
        "repeats": repeats,
        "counted": way.is_point_to_point,
        "traffic": [dict(zip(moved, map(int, r), strict=True)) for r in ranks],
        "wire_bytes": None if away or moved_here is None else float(moved_here[0]),
        **({"ports": [dict(zip(PORT, map(float, p), strict=True)) for p in ports]} if away else {}),
    }


def verify_sum(comm: Communicator, name: str, whole: Any, total: Any) -> None:
    """Check this rank's result against the sum over the ranks, which must be exact; for averaging
    with neighbours, against n times the mean over this rank and its neighbours, within rounding.

    Args:
        name: of the strategy.
        whole: rank 0's vector; rank r's vector is ``whole + r``.
        total: this rank's result.

    Raises:
        TrialError: an element differs.
    """
    n, got = comm.size, comm.numpy(total)
    near = {(comm.rank + shift) % n for shift in (-1, 0, 1)}
    if strategy(name).exact:
        expected, slack = n * whole + n * (n - 1) / 2, 0.0
    else:
        expected, slack = n * (whole + sum(near) / len(near)), 1e-5 * n * (PERIOD + n)
    wrong = np.abs(got - expected) > slack
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise TrialError(
            f"{name} over {n} ranks is wrong: element {at} is {got[at]:g}, not {expected[at]:g}"
        )


def broadcast_repeats(comm: Communicator, repeats: int) -> int:
    """Return rank 0's ``repeats`` on all ranks, which all call it; those of the others are
    ignored."""
    choice = comm.broadcast(comm.tensor(np.array([repeats], np.int64)))
    return int(comm.numpy(choice)[0])


def copy_seconds(nbytes: int) -> float:
    """Return the median seconds to copy ``nbytes`` from memory to memory, the machine's lower
    bound."""
    source = np.ones(nbytes // 4, np.float32)
    target = np.zeros_like(source)
    spent = []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, source)
        spent.append(time.perf_counter() - begin)
    return float(np.median(spent))


def interface_counts(name: str) -> NDArray[np.float64] | None:
    """Return the counters of a network interface since its start, in the order of `PORT`; None
    without such an interface, or where the system does not count (Linux only).

    Args:
        name: of the interface; empty for the loopback.
    """
    try:
        lines = Path("/proc/net/dev").read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        interface, colon, figures = line.partition(":")
        if colon and interface.strip() == (name or "lo"):
            received, sent = figures.split()[:8], figures.split()[8:]
            return np.array([*sent[:2], *received[:2]], np.float64)
    return None
