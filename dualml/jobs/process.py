"""Whether a process is still the one that it was."""

from __future__ import annotations


def born(pid: int) -> float | None:
    """When a process began; None where it is gone."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, OverflowError):
        return None
