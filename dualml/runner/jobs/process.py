"""Identity of a process beyond its pid, which the system reuses."""

from __future__ import annotations


def process_start_time(pid: int) -> float | None:
    """Return the start time of a process in seconds since 1970; None if it has ended (a zombie
    has)."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, OverflowError):
        return None
