"""Which of this machine's cores a trial computes on, and with how many threads, beside other work.

Threads that wait for one another are as slow as the slowest, and ranks as well. Measured for both
frameworks, quiet and beside busy processes: see "beside busy processes" in docs/benchmarks.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from dualml import machine

#: Seconds that are looked at, at least: the kernel counts in hundredths.
LEAST_S = 0.25
#: A machine is quiet while others take less than so much of one core.
QUIET = 0.5
#: What says where threads run; what the user says counts.
PLACED = ("GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")


class Watch:
    """What other processes take of the usable cores, from this moment on."""

    def __init__(self) -> None:
        self.start = now()

    def busy(self) -> list[float]:
        """Of each usable core, the share that others kept busy; waits until `LEAST_S` are over.

        Where this process computed is not known: what it did is taken off all cores alike.
        """
        time.sleep(max(0.0, self.start[0] + LEAST_S - time.monotonic()))
        wall, own, *cores = (b - a for a, b in zip(self.start, now(), strict=True))
        others = max(0.0, 1 - own / max(sum(cores), own, 1e-9))
        return [round(others * seconds / wall, 2) for seconds in cores]


def now() -> list[float]:
    """Seconds: of the wall clock, that this process and its children computed, and that each of the
    usable cores was busy."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    chosen = [cores[i] for i in machine.USABLE if i < len(cores)] or cores
    busy = [sum(one[:8]) - one.idle - getattr(one, "iowait", 0.0) for one in chosen]
    return [time.monotonic(), sum(os.times()[:4]), *busy]


def threads_beside(busy: Sequence[float]) -> int:
    """Threads to compute with: ``OMP_NUM_THREADS`` if set, else one for each physical core that
    others leave, at least one. Beside one busy process on two cores two threads took four times as
    long as one."""
    most = machine.default_threads()
    if most == 1 or os.environ.get("OMP_NUM_THREADS") == str(most):
        return most
    cores = len(machine.USABLE) or os.cpu_count() or 1
    return max(1, min(most, round(cores - sum(busy))))


def of_one_rank(threads: int, busy: Sequence[float], crowded: bool) -> dict[str, str]:
    """Environment variables that keep GNU's OpenMP, and what its first thread starts, on cores of
    their own.

    A rank that takes all cores has one for each thread: with fewer, two programs could choose the
    same ones.

    Args:
        crowded: the framework has more threads than it computes with. Given a core each, all but
            OpenMP's would share the first one; but beside other work it is faster to stay
            together, on the idlest cores.
    """
    cores = machine.USABLE
    if any(name in os.environ for name in PLACED) or len(busy) != len(cores):
        return {}
    if crowded and sum(busy) >= QUIET and threads < len(cores):
        cores = sorted(cores, key=lambda core: busy[cores.index(core)])[:threads]
    elif crowded or not 1 < threads == len(cores):
        return {}
    return {"GOMP_CPU_AFFINITY": " ".join(map(str, cores))}


def of_each_rank(ranks: int, threads: int, busy: Sequence[float], crowded: bool) -> int:
    """How many cores of its own each of several ranks is held on; 0: wherever the system puts it.

    Held ranks exchange data faster. Beside other work they would wait for the core that somebody
    else has taken; those of a crowded framework (`of_one_rank`) are still faster, and held where
    they want the whole machine in any case.
    """
    whole = ranks * threads >= len(machine.USABLE)
    return threads if sum(busy) < QUIET or (crowded and whole) else 0
