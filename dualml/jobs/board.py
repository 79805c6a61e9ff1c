"""TensorBoard of a job: a process of its own, which this one ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dualml.errors import UserError
from dualml.export.base import needs
from dualml.jobs.store import Job
from dualml.launch.child import on_death_of_parent
from dualml.launch.supervise import last_lines

EVENTS = "events.out.tfevents.*"
#: Of its start: it imports for seconds, on a busy machine for many.
START_S, END_S, POLL_S = 120.0, 5.0, 0.2
URL = re.compile(rb"https?://\S+:\d+/\S*")
#: Bytes of its log in which the address is looked for.
HEAD = 2**16


def serve_board(job: Job, port: int) -> Iterator[str]:
    """Start TensorBoard over the event files in a job's folder, on the loopback address alone.
    Yields its address, then goes on until it is interrupted, or TensorBoard ends.

    Args:
        port: 0: any that is free.

    Raises:
        UserError: there are no event files yet, no TensorBoard, or it does not start.
    """
    needs("tensorboard", "tensorboard")
    out = Path(job.out)
    if next(out.rglob(EVENTS), None) is None:
        how = (
            "let the script write them into the folder $DUALML_JOB_OUT"
            if job.command
            else "submit it with --tensorboard"
        )
        raise UserError(f"job {job.id}: no event files of TensorBoard in {out} yet; {how}")
    with tempfile.NamedTemporaryFile(prefix="dualml-tensorboard-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tensorboard.main", "--logdir", str(out),
             "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: on_death_of_parent(signal.SIGTERM),
        )  # fmt: skip
        try:
            yield address(process, Path(log.name))
            process.wait()
        except KeyboardInterrupt:
            return
        finally:
            end(process)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until TensorBoard says where it listens.

    Raises:
        UserError: it ends instead, or says nothing for `START_S`.
    """
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        with log.open("rb") as file:
            if match := URL.search(file.read(HEAD)):
                return match[0].decode("ascii", "replace")
        if ended:
            break
        time.sleep(POLL_S)
    said = last_lines(log, 1)
    raise UserError(f"TensorBoard did not start: {said[0] if said else 'it said nothing'}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End TensorBoard and the readers that it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
