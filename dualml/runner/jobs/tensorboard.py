"""TensorBoard for a job, as a child process that this process ends."""

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

from dualml.common.errors import UserError
from dualml.launch.process import start_session
from dualml.launch.supervise import last_lines
from dualml.report.export.base import require_library
from dualml.runner.jobs.store import JobSpec

EVENTS = "events.out.tfevents.*"
#: Time limits in seconds; the start is slow because TensorBoard imports for many seconds.
START_S, END_S, POLL_S = 120.0, 5.0, 0.2
URL = re.compile(rb"https?://\S+:\d+/\S*")
#: Bytes of its log that are searched for the address.
HEAD = 2**16


def serve_board(job: JobSpec, port: int) -> Iterator[str]:
    """Start TensorBoard over the event files in a job's folder, on the loopback address only.
    Yields its address, then waits until it is interrupted or TensorBoard ends.

    Args:
        job: the job.
        port: 0 for any free one.

    Raises:
        UserError: there are no event files yet, TensorBoard is not installed, or it does not start.
    """
    require_library("tensorboard", "tensorboard")
    out = Path(job.out)
    if next(out.rglob(EVENTS), None) is None:
        how = "submit it with --tensorboard"
        if job.command:
            how = "let the script write them into the folder $DUALML_JOB_OUT"
        raise UserError(f"job {job.id}: no event files of TensorBoard in {out} yet; {how}")
    with tempfile.NamedTemporaryFile(prefix="dualml-tensorboard-", suffix=".log") as log:
        options = ["--logdir", str(out), "--host", "127.0.0.1", "--port", str(port)]
        command = [sys.executable, "-P", "-m", "tensorboard.main", *options]
        process = start_session(command, log, signal.SIGTERM)
        try:
            yield wait_for_address(process, Path(log.name))
            process.wait()
        except KeyboardInterrupt:
            return
        finally:
            end_tensorboard(process)


def wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until TensorBoard prints its address, and return it.

    Raises:
        UserError: it ends instead, or prints nothing for `START_S` seconds.
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
    raise UserError(f"TensorBoard did not start: {said[0] if said else 'it printed nothing'}")


def end_tensorboard(process: subprocess.Popen[bytes]) -> None:
    """End TensorBoard and the processes that it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
