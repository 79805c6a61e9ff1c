"""Supervision of the ranks by their owner: it starts them, reads their events, and ends them,
whatever happens."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dualml.common.bounded_io import MAX_LINE_BYTES, decode_header, read_lines
from dualml.common.files import open_to_read
from dualml.common.json_types import JsonObject
from dualml.launch.child import SECONDARY as SECONDARY
from dualml.launch.child import describe_exit as describe_exit
from dualml.launch.launcher import LaunchedRank
from dualml.launch.process import Launch, Process, start_servers

GRACE_S = 2.0
POLL_S = 0.1
#: Bytes at the end of a log that are searched for its last lines.
TAIL = 2**16
#: Seconds that the other ranks may still report after the first failure: the first to end is
#: often only the first to notice.
PEERS_S = 1.5
#: Seconds that a process may be stopped (by a debugger, a snapshot of the machine).
STOPPED_S = 3.0
#: Capacity of the event queue of all ranks; a rank that sends more waits.
MAX_QUEUED_EVENTS = 1000
#: Types of the event fields that are used here and by listeners; null is valid for all of them.
FIELDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("event", "phase", "inside", "status", "reason", "kind"), (str,)),
    **dict.fromkeys(("done", "total", "loss", "calls"), (int, float)),
}


@dataclass(frozen=True)
class GroupResult:
    """The result of a group of ranks.

    Attributes:
        code: exit code of the rank at fault, −1 if it has none, as where the watchdog ended them; 0
            if all ended well, or were abandoned before one failed.
        reason: why the watchdog ended them, or that a rank did not end by itself; else None.
        rank: the rank at fault, or the first one if there is none.
        results: rank → its last event ``{"event": "result", …}``.
    """

    code: int
    reason: str | None = None
    rank: int = 0
    results: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class RankProcess:
    """State of one process while it runs.

    Attributes:
        last_event_time: of its last sign of life, on the clock of `time.monotonic`.
        pulse: number of collectives it has entered, and the one it waits in; empty if none.
        code: its exit code; None while it runs.
        stop_time: since when it has been stopped by SIGSTOP; None if it is not.
    """

    process: Process | LaunchedRank
    last_event_time: float
    pulse: tuple[int, str] = (0, "")
    code: int | None = None
    stop_time: float | None = None


@dataclass(frozen=True)
class StartedRanks:
    """The processes of a group of ranks, by rank, and the queue of their events, ``(rank,
    event)``."""

    processes: Sequence[RankProcess]
    events: queue.Queue[Any]


def supervise(
    launches: Sequence[Launch | LaunchedRank],
    on_event: Callable[[int, JsonObject], None],
    *,
    limit: float,
    silence: float,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> GroupResult:
    """Start all ranks, watch them to their end and return how they ended; all processes are gone
    then. For the arguments see `start_ranks` and `watch_ranks`.

    Raises:
        KeyboardInterrupt: after all processes and their children are gone.
    """
    with start_ranks(launches) as ranks:
        return watch_ranks(ranks, on_event, limit=limit, silence=silence, is_abandoned=is_abandoned)


def watch_ranks(
    started: StartedRanks,
    on_event: Callable[[int, JsonObject], None],
    *,
    limit: float,
    silence: float,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> GroupResult:
    """Watch the ranks until all have ended, for `PEERS_S` seconds after one has failed, or until
    they must be ended; return how the group ended. Processes that still run are left to the caller.

    Args:
        started: the ranks.
        on_event: called as ``on_event(rank, event)`` with each event of a rank but its result and
            its pulses.
        limit: seconds they may take; the clock restarts with every ``{"event": "trial"}`` of a
            rank.
        silence: seconds a rank may go without an event; a pulse counts if it has entered another
            collective since.
        is_abandoned: whether nobody needs them any more; then the watch ends, which is no failure.
    """
    ranks, begin = started.processes, time.monotonic()
    results: dict[int, dict[str, Any]] = {}
    fault: tuple[float, str | None, int] | None = None
    while any(r.code is None for r in ranks):
        rank, event = next_event(started.events)
        now = time.monotonic()
        if event is not None:
            if event.get("event") == "trial":  # of several, one after the other
                begin = now
            handle_event(rank, event, ranks[rank], results, on_event, now)
            # The listener may have waited for its terminal; no rank pays for that.
            waited = time.monotonic() - now
            begin += waited
            for known in ranks:
                known.last_event_time += waited
        elif rank >= 0:  # its channel closed: it is at its end
            ranks[rank].code, reason = wait_for_exit(ranks[rank])
            if (ranks[rank].code or reason) and fault is None:
                fault = (now, reason, rank)
        if fault is None and (stuck := check_watchdog(ranks, begin, now, limit, silence)):
            return GroupResult(-1, stuck[1], stuck[0], results)
        if (fault is not None and now - fault[0] > PEERS_S) or is_abandoned():
            break
    if fault is None:
        return GroupResult(0, None, 0, results)
    guilty = fault[2] if fault[1] else root_cause_rank(ranks, results, fault[2])
    return GroupResult(ranks[guilty].code or -1, fault[1], guilty, results)


def next_event(events: queue.Queue[Any]) -> tuple[int, dict[str, Any] | None]:
    """Return the next event with its rank. The event is None for a closed channel; the rank is −1
    when nothing arrived within `POLL_S` seconds."""
    try:
        heard: tuple[int, dict[str, Any] | None] = events.get(timeout=POLL_S)
        return heard
    except queue.Empty:
        return -1, None


def handle_event(
    rank: int,
    event: dict[str, Any],
    known: RankProcess,
    results: dict[int, dict[str, Any]],
    on_event: Callable[[int, dict[str, Any]], None],
    now: float,
) -> None:
    """Handle an event: store a result in ``results``, count a pulse as a sign of life only if its
    number of collectives changed, and pass any other event to ``on_event``."""
    if event.get("event") == "result":
        results[rank] = event
    elif event.get("event") == "pulse":
        pulse = (int(event.get("calls") or 0), str(event.get("inside") or ""))
        known.last_event_time = now if pulse[0] != known.pulse[0] else known.last_event_time
        known.pulse = pulse
    else:
        known.last_event_time = now
        on_event(rank, event)


def wait_for_exit(rank: RankProcess) -> tuple[int, str | None]:
    """Wait up to `GRACE_S` seconds for a process whose channel closed, and return its exit code and
    None, or −1 and a reason if it does not end. An exit code other than 0 is no reason."""
    try:
        return rank.process.wait(timeout=GRACE_S), None
    except subprocess.TimeoutExpired:
        return -1, "closed its channel but did not end"


def check_watchdog(
    ranks: Sequence[RankProcess], begin: float, now: float, limit: float, silence: float
) -> tuple[int, str] | None:
    """Return the rank for which the watchdog must end the group, and why; None if all is well.

    Ranks that have ended are not watched. The `stop_time` of the others is updated.

    Args:
        begin, now: start of the time limit and the current time, of `time.monotonic`.
        limit: seconds the ranks may take.
        silence: seconds a rank may go without a sign of life.
    """
    live = [(number, r) for number, r in enumerate(ranks) if r.code is None]
    for number, r in live:
        r.stop_time = (r.stop_time or now) if is_suspended(r.process.pid) else None
        if r.stop_time is not None and now - r.stop_time > min(STOPPED_S, silence):
            return number, "was stopped (SIGSTOP) and not continued"
    if live and now - begin > limit:
        return slowest_rank(live), f"took longer than the time limit of {limit:g} s"
    if any(now - r.last_event_time > silence for _, r in live):
        return slowest_rank(live), f"gave no sign of life for {silence:g} s"
    return None


def slowest_rank(live: Sequence[tuple[int, RankProcess]]) -> int:
    """Return the rank that most likely blocks the others: of those that have entered the fewest
    collectives, one that does not wait inside one, or else the one silent for longest."""
    return min(
        live, key=lambda item: (item[1].pulse[0], bool(item[1].pulse[1]), item[1].last_event_time)
    )[0]


def is_suspended(pid: int) -> bool:
    """Return whether a process is stopped by a signal (SIGSTOP)."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def root_cause_rank(
    ranks: Sequence[RankProcess], results: Mapping[int, dict[str, Any]], first: int
) -> int:
    """Return the rank that caused the failure: one that was killed, before one with an error of its
    own, before one with an error of communication; of equals, ``first``, the first that failed."""

    def order(number: int) -> tuple[int, bool]:
        code, result = ranks[number].code, results.get(number)
        if not code:
            return 3, True
        if result is None:
            return (0 if code < 0 else 1), number != first
        return (2 if result.get("kind") == SECONDARY else 1), number != first

    return min(range(len(ranks)), key=order)


@contextlib.contextmanager
def start_ranks(launches: Sequence[Launch | LaunchedRank]) -> Iterator[StartedRanks]:
    """Start each process in a session of its own, and provide the ranks; all process groups are
    gone when the block is left."""
    events: queue.Queue[Any] = queue.Queue(MAX_QUEUED_EVENTS)
    ranks: list[RankProcess] = []
    readers: list[threading.Thread] = []
    over = threading.Event()

    def put_event(number: int, event: dict[str, Any] | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                events.put((number, event), timeout=POLL_S)
                return

    try:
        start_servers([launch for launch in launches if isinstance(launch, Launch)])
        for number, launch in enumerate(launches):
            process = launch.start()
            ranks.append(RankProcess(process, time.monotonic()))
            reader = threading.Thread(
                target=read_events, args=(process.stdout, partial(put_event, number)), daemon=True
            )
            reader.start()
            readers.append(reader)
        yield StartedRanks(ranks, events)
    finally:
        over.set()
        end_processes([r.process for r in ranks])
        for reader in readers:
            reader.join(timeout=GRACE_S)
        for r in ranks:
            for pipe in (r.process.stdin, r.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def read_events(pipe: Any, put: Callable[[dict[str, Any] | None], object]) -> None:
    """Pass the events of a rank to ``put``, and None when its channel has closed or cannot be read.

    Args:
        pipe: lines of bytes, from a process that may be killed in the middle of one, and may write
            anything.
        put: called with each event.
    """
    try:
        with contextlib.suppress(OSError, ValueError):  # the pipe was closed
            for line in read_lines(pipe, MAX_LINE_BYTES) if hasattr(pipe, "readline") else pipe:
                if (event := parse_event(line)) is not None:
                    put(event)
    finally:
        put(None)


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Parse a line as an event; None if it is not one, or has fields of other types."""
    try:
        event = decode_header(line, MAX_LINE_BYTES + 1, finite=False)
    except ValueError:
        return None
    fields = ((event.get(name), kinds) for name, kinds in FIELDS.items())
    typed = all(value is None or type(value) in kinds for value, kinds in fields)
    calls = event.get("calls") or 0
    return event if typed and math.isfinite(calls) else None


def end_processes(processes: Sequence[Process | LaunchedRank]) -> None:
    """End all process groups together: with SIGTERM, and after at most `GRACE_S` seconds with
    SIGKILL, also those whose leader has ended."""
    for sign in (signal.SIGTERM, signal.SIGKILL):  # the second also for orphans of a dead leader
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
        deadline = time.monotonic() + GRACE_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))


def last_lines(log: Path, count: int = 5) -> list[str]:
    """Return the last ``count`` lines that are not blank, of the last `TAIL` bytes of a log; empty
    if it cannot be read, or is a link."""
    try:
        with open_to_read(log, follow_links=False) as file:
            file.seek(-min(TAIL, os.fstat(file.fileno()).st_size), os.SEEK_END)
            lines = file.read(TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
