"""The owner of a worker process: starts it, listens to it, and ends it, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRACE_S = 2.0
POLL_S = 0.1


@dataclass(frozen=True)
class Ended:
    """How a worker ended: its exit code, and the watchdog's reason if that ended it."""

    code: int
    reason: str | None = None
    result: dict[str, Any] | None = None


def supervise(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: Path,
    on_event: Callable[[dict[str, Any]], None],
    *,
    limit: float,
    silence: float,
) -> Ended:
    """Run one worker to its end.

    Args:
        environ: added to this process's environment.
        log: file that receives everything the worker prints.
        on_event: called with each event of the worker.
        limit: seconds the worker may take.
        silence: seconds it may go without an event.

    Raises:
        KeyboardInterrupt: after the worker and its children are gone.
    """
    begin = last = time.monotonic()
    result = None
    with log.open("ab") as output, started(command, environ, output) as (process, events):
        while True:
            try:
                event = events.get(timeout=POLL_S)
            except queue.Empty:
                event = {}
            now = time.monotonic()
            if event is None:  # the channel closed: the worker is at its end
                break
            if event.get("event") == "result":
                result = event
            elif event:
                last = now
                on_event(event)
            if now - begin > limit:
                return Ended(-1, f"took longer than the time limit of {limit:g} s")
            if now - last > silence:
                return Ended(-1, f"gave no sign of life for {silence:g} s")
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            return Ended(-1, "closed its channel but did not end")
    return Ended(process.returncode, None, result)


@contextlib.contextmanager
def started(
    command: Sequence[str], environ: Mapping[str, str], output: Any
) -> Iterator[tuple[subprocess.Popen[bytes], queue.Queue[Any]]]:
    """The process in a session of its own; its whole group is gone when the block is left."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        start_new_session=True,
    )
    events: queue.Queue[Any] = queue.Queue()
    reader = threading.Thread(target=listen, args=(process.stdout, events), daemon=True)
    reader.start()
    try:
        yield process, events
    finally:
        end(process)
        reader.join(timeout=GRACE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def listen(pipe: Any, events: queue.Queue[Any]) -> None:
    for line in pipe:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a line cut off by the worker's death
        if isinstance(event, dict):
            events.put(event)
    events.put(None)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: politely, then for good."""
    for sign in (signal.SIGTERM, signal.SIGKILL):  # the second also for orphans of a dead leader
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_S)


def last_lines(log: Path, count: int = 5) -> list[str]:
    """The end of a log, for the record of a failed trial."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
