"""What a process may use, as hard limits, which it cannot raise again."""

from __future__ import annotations

import os
import resource
from pathlib import Path

#: Bytes of memory beyond what the framework has taken, of one file, and of all that is printed.
MEMORY, FILE = 2 << 30, 32 << 20
#: Threads, open files, bytes of locked memory, queued signals.
THREADS, FILES, LOCKED, SIGNALS = 128, 256, 1 << 20, 256


def address_space() -> int:
    """Bytes of address space that this process has taken; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def limit(seconds: float, taken: int, memory: int = MEMORY, walls: bool = False) -> None:
    """Bound what the system gives this process from now on.

    Args:
        seconds: of wall time that all of its work may take; its processor time follows from it.
        taken: bytes of address space that it has already, see `address_space`.
        walls: whether the user of this process runs nothing else, so that its processes, threads
            and open files can be counted, too.
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
        lower(kind, most, most)
    lower(resource.RLIMIT_CPU, processor, processor + 2)  # SIGXCPU first, which has a name


def lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, but never above what holds already."""
    _, before = resource.getrlimit(kind)
    if before != resource.RLIM_INFINITY:
        soft, hard = min(soft, before), min(hard, before)
    resource.setrlimit(kind, (soft, hard))
