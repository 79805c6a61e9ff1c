"""Choose the cores and threads of a trial when other processes use this machine too.

Threads that wait for one another are as slow as the slowest of them, and so are ranks. The rules
follow measurements of both frameworks, on an idle machine and beside busy processes: see "beside
busy processes" in docs/benchmarks.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from dualml.common import machine

#: Minimum seconds to observe: the kernel counts in hundredths of a second.
MIN_INTERVAL_S = 0.25
#: A machine counts as idle while other processes use less than this fraction of one core.
QUIET = 0.5
#: Environment variables that pin threads to cores; a value set by the user takes precedence.
AFFINITY_VARIABLES = ("GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")


class CpuLoadMonitor:
    """Monitor of the CPU time that other processes take, starting when it is constructed."""

    def __init__(self) -> None:
        self.start = cpu_times()

    def busy_fractions(self) -> list[float]:
        """Return, per usable core, the fraction of time that other processes kept it busy.

        Measured from construction until now; waits if that is less than `MIN_INTERVAL_S`. Which
        core this process used is unknown, so its own CPU time (with its children's) is subtracted
        from all cores in proportion.
        """
        time.sleep(max(0.0, self.start[0] + MIN_INTERVAL_S - time.monotonic()))
        wall, own, *cores = (b - a for a, b in zip(self.start, cpu_times(), strict=True))
        others = max(0.0, 1 - own / max(sum(cores), own, 1e-9))
        return [round(others * seconds / wall, 2) for seconds in cores]


def cpu_times() -> list[float]:
    """Return seconds in this order: the monotonic clock, CPU time of this process and its ended
    children, busy time of each usable core by whichever process."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    chosen = [cores[i] for i in machine.USABLE if i < len(cores)] or cores
    busy = [sum(one[:8]) - one.idle - getattr(one, "iowait", 0.0) for one in chosen]
    return [time.monotonic(), sum(os.times()[:4]), *busy]


def available_threads(busy: Sequence[float]) -> int:
    """Return the number of compute threads that the load of other processes leaves room for.

    ``OMP_NUM_THREADS`` wins if set; otherwise one thread per usable logical core that others leave
    idle, at least one and at most one per physical core. Beside one busy process on two cores, two
    threads took four times as long as one.

    Args:
        busy: load of each usable logical core by other processes, as a fraction.
    """
    most = machine.default_threads()
    if most == 1 or os.environ.get("OMP_NUM_THREADS") == str(most):
        return most
    cores = len(machine.USABLE) or os.cpu_count() or 1
    return max(1, min(most, round(cores - sum(busy))))


def affinity_env(threads: int, busy: Sequence[float], crowded: bool) -> dict[str, str]:
    """Return the environment variable that binds the OpenMP threads of a single rank to cores:
    ``GOMP_CPU_AFFINITY`` → core numbers. Empty, which leaves threads unbound, if the user has set
    one of `AFFINITY_VARIABLES`.

    Otherwise two or more threads are bound if they are as many as the usable logical cores: with
    fewer, two programs might choose the same cores. For ``crowded`` see below.

    Args:
        threads: compute threads of the rank.
        busy: load of each usable core by other processes, as a fraction; of another length than
            the usable cores, nothing is bound.
        crowded: the framework starts more threads than it computes with. If each OpenMP thread were
            bound to a core, all others would share the first core. So threads are bound only on a
            loaded machine, to the ``threads`` idlest cores, and only if these are not all.
    """
    cores = machine.USABLE
    if any(name in os.environ for name in AFFINITY_VARIABLES) or len(busy) != len(cores):
        return {}
    if crowded and sum(busy) >= QUIET and threads < len(cores):
        cores = sorted(cores, key=lambda core: busy[cores.index(core)])[:threads]
    elif crowded or not 1 < threads == len(cores):
        return {}
    return {"GOMP_CPU_AFFINITY": " ".join(map(str, cores))}


def cores_per_rank(ranks: int, threads: int, busy: Sequence[float], crowded: bool) -> int:
    """Return how many logical cores to pin each of several ranks to: ``threads``, or 0 for no
    pinning.

    Pinned ranks exchange data faster. On a loaded machine, with a sum of ``busy`` of `QUIET` or
    more, they would wait for a core that another process has taken, and are not pinned. Ranks of a
    framework that oversubscribes its cores are still faster when pinned, and are pinned if together
    they use the whole machine.

    Args:
        ranks: number of ranks on this machine.
        threads: compute threads of each rank.
        busy: load of each usable core by other processes, as a fraction.
        crowded: the framework starts more threads than it computes with (see `affinity_env`).
    """
    whole = ranks * threads >= len(machine.USABLE)
    return threads if sum(busy) < QUIET or (crowded and whole) else 0
