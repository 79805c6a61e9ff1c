"""A process that a framework's launcher starts only to help the ranks find one another."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.backend import ExternalLaunch
from dualml.experiment.store.sessions import announcement_file
from dualml.launch.supervise import end_processes as end_all

POLL_S = 0.1
#: Seconds within which the launcher starts the ranks after their helper process.
COME_S = 5.0


def run_helper(
    launcher: ExternalLaunch, run: Path | None, environ: Mapping[str, str], wait: float
) -> None:
    """Run the launcher's helper until rank 0 announces the end, the ranks are gone, the helper ends
    by itself, or ``wait`` seconds have passed; then end it.

    The launcher waits for this process. The helper ends when its standard input closes.

    Args:
        launcher: that started this process.
        run: folder of rank 0's announcements; None to ignore announcements that are there.
        environ: variables of the helper, added to those of this process.
        wait: seconds, at most.
    """
    process = subprocess.Popen(
        list(launcher.helper),
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        number, end, ranks = 0, time.monotonic() + wait, dict[int, Any]()
        while process.poll() is None and time.monotonic() < end and any_rank_alive(ranks):
            announced = announcement_file(number).read_if_present(run) if run is not None else None
            if announced is not None:
                if announced.places is None:
                    return
                number += 1
            time.sleep(POLL_S)
    finally:
        end_all([process])


def any_rank_alive(ranks: dict[int, Any]) -> bool:
    """Return whether a rank of this launcher, another child with this process's command line, is
    alive; without any rank so far, whether this process is younger than `COME_S` seconds.

    Args:
        ranks: pid → process of the ranks seen so far, to which new ones are added; the launcher
            starts the same command for all.
    """
    import psutil

    me = psutil.Process()
    with contextlib.suppress(psutil.Error):
        for other in psutil.Process(os.getppid()).children():
            if other != me and other.pid not in ranks and other.cmdline() == me.cmdline():
                ranks[other.pid] = other
    if not ranks:  # looked for first: this process itself may have taken that long to get here
        return bool(time.time() - me.create_time() < COME_S)
    return any(is_alive(rank) for rank in ranks.values())


def is_alive(process: Any) -> bool:
    """Return whether a process has not ended; a zombie has."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
