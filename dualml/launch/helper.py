"""A process that a framework's launcher starts only to help the ranks find one another."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.backend import Adopted
from dualml.launch.supervise import end as end_all
from dualml.store.sessions import announcement

POLL_S = 0.1
#: The launcher starts the ranks within so many seconds of the process that only helps them.
COME_S = 5.0


def help_ranks(
    launcher: Adopted, run: Path | None, environ: Mapping[str, str], wait: float
) -> None:
    """What a process that only helps does: its helper, until rank 0 announces the end, or until
    the ranks are gone: the launcher waits for this process. The helper ends with its input.

    Args:
        run: where rank 0 announces; None if nothing that stands there counts.
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
        while process.poll() is None and time.monotonic() < end and still_there(ranks):
            announced = announcement(number).read_if_there(run) if run is not None else None
            if announced is not None:
                if announced.places is None:
                    return
                number += 1
            time.sleep(POLL_S)
    finally:
        end_all([process])


def still_there(ranks: dict[int, Any]) -> bool:
    """Whether a rank of this launcher is alive, or none has come yet.

    Args:
        ranks: those seen so far; the launcher starts the same command for all of them.
    """
    import psutil

    me = psutil.Process()
    with contextlib.suppress(psutil.Error):
        for other in psutil.Process(os.getppid()).children():
            if other != me and other.pid not in ranks and other.cmdline() == me.cmdline():
                ranks[other.pid] = other
    if not ranks:  # looked for first: this process itself may have taken that long to get here
        return bool(time.time() - me.create_time() < COME_S)
    return any(lives(rank) for rank in ranks.values())


def lives(process: Any) -> bool:
    """Whether a process has not ended, even if nobody has asked for its exit code."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
