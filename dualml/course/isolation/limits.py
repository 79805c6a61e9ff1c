"""Hard resource limits of a process, which it cannot raise again."""

from __future__ import annotations

import os
import resource
from pathlib import Path

#: Limits in bytes: memory beyond what the framework uses, size of one file, and all output.
MEMORY, FILE = 2 << 30, 32 << 20
#: Limits of threads, open files, bytes of locked memory, and queued signals.
THREADS, FILES, LOCKED, SIGNALS = 128, 256, 1 << 20, 256


def address_space() -> int:
    """Return the bytes of address space that this process uses; 0 if the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def apply_limits(seconds: float, taken: int, memory: int = MEMORY, walls: bool = False) -> None:
    """Limit the resources of this process from now on.

    Args:
        seconds: wall time of all of its work, from which the limit of processor time follows.
        taken: bytes of address space that it already uses, see `address_space`; 0: memory is not
            limited.
        walls: whether the user of this process runs nothing else, so that processes, threads and
            open files can be limited, too.
    """
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    processor = int(spent + seconds * (os.cpu_count() or 1)) + 5
    limits = [(resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)]
    if taken:
        limits.append((resource.RLIMIT_AS, taken + memory))
    if walls:
        limits += [
            (resource.RLIMIT_NPROC, THREADS),
            (resource.RLIMIT_NOFILE, FILES),
            (resource.RLIMIT_MEMLOCK, LOCKED),
            (resource.RLIMIT_SIGPENDING, SIGNALS),
            (resource.RLIMIT_MSGQUEUE, 0),
        ]
    for kind, most in limits:
        lower_limit(kind, most, most)
    lower_limit(resource.RLIMIT_CPU, processor, processor + 2)  # SIGXCPU first, which has a name


def lower_limit(kind: int, soft: int, hard: int) -> None:
    """Set the soft and the hard limit of a resource, but neither above the current hard one."""
    _, before = resource.getrlimit(kind)
    if before != resource.RLIM_INFINITY:
        soft, hard = min(soft, before), min(hard, before)
    resource.setrlimit(kind, (soft, hard))
