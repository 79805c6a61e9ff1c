"""The warden of one check: it sets up the isolation, starts the ranks in it, mediates between them,
and ends them.

There are three kinds of processes: the warden, forked from the server; inside the isolation a first
process, which only waits for the others; and the ranks. When the first process is killed, the
kernel ends its whole pid namespace. It is killed when the warden ends, for whatever reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NoReturn

from dualml.common.json_types import JsonMapping
from dualml.course.frames import join_ranks, plain_text, receive, send, split_by_rank
from dualml.course.isolation import syscalls
from dualml.course.isolation.walls import Walls
from dualml.course.mediator import Mediator
from dualml.course.member import Member
from dualml.course.student import RANKS_S, Student
from dualml.launch.child import describe_exit, on_death_of_parent

#: Time limits in seconds: for the judge's job, and for the late answer of a rank.
JOB_S, LATE_S = 60.0, 3.0
#: Seconds between two calls of the judge, which may wait for a core.
CALL_S = 120.0
#: Extra seconds for loading the student's file on a busy machine.
LOAD_S = 30.0
END = struct.Struct("=ii")


def run_warden(control: socket.socket, printed: Sequence[int], walls: Walls) -> NoReturn:
    """Do one job: receive the judge's messages and send the results; never return."""
    code = 0
    try:
        try:
            walls.enter_namespaces()
        except (OSError, AttributeError) as error:
            send(control, {"event": "no walls", "why": plain_text(error)})
            os._exit(1)
        send(control, {"event": "walls"})
        job, sources = receive(control, JOB_S)
        files = {name: a.tobytes() for name, a in sources.items()}
        run_job(control, job, files, printed, walls)
    except (OSError, InterruptedError):
        code = 1  # the judge is gone
    except BaseException as error:  # ours: the judge says so, and nobody's grade depends on it
        with contextlib.suppress(OSError):
            text = f"{type(error).__name__}: {error}"
            send(control, {"event": "failed", "why": plain_text(text)})
        code = 1
    finally:
        walls.remove()
    os._exit(code)


def run_job(
    control: socket.socket,
    job: JsonMapping,
    files: Mapping[str, bytes],
    printed: Sequence[int],
    walls: Walls,
) -> None:
    """Start the ranks, make the calls, and end the ranks.

    The calls are received after the ranks were forked, so that a rank's memory never contains calls
    that were not yet sent to it, nor the inputs of other ranks. Return after a call that ends this
    group of ranks, or at once if the ranks' preparation fails.
    """
    size = int(job["size"])
    pairs = [socket.socketpair() for _ in range(size)]
    ends, report = os.pipe()
    first = os.fork()
    if not first:
        close_all([control.fileno(), ends, *(ours.fileno() for ours, _ in pairs)])
        run_first_process(job, files, [theirs for _, theirs in pairs], report, printed, walls)
    with contextlib.suppress(OSError):  # it may have done so itself
        os.setpgid(first, first)
    os.close(report)
    for _, theirs in pairs:
        theirs.close()
    try:
        mediator = Mediator([ours for ours, _ in pairs], ExitCodes(ends, size))
        seconds = float(job["seconds"])
        nothing: list[dict[str, Any]] = [{} for _ in range(size)]
        members = mediator.run(-1, {}, nothing, seconds + LOAD_S, control)
        send_outcome(control, members, mediator)
        if any(member.trouble for member in members):
            return
        limit = seconds if size == 1 and not job["comm"] else min(seconds, RANKS_S)
        for number in count():
            header, arrays = receive(control, CALL_S)
            asked = {**header, "number": number, "seconds": limit}
            inputs = split_by_rank(arrays, size)
            members = mediator.run(number, asked, inputs, limit + LATE_S, control)
            if send_outcome(control, members, mediator):
                return  # a new group goes on
    finally:
        for end in (os.killpg, os.kill):  # with the first process its pid namespace ends, if any
            with contextlib.suppress(OSError):
                end(first, signal.SIGKILL)
        os.waitpid(first, 0)


def send_outcome(control: socket.socket, members: Sequence[Member], mediator: Mediator) -> bool:
    """Send the result of a call to the judge, without arrays if a rank had trouble; return whether
    it was the last one of this group of ranks."""
    troubles = [
        [m.rank, m.trouble.kind, m.trouble.message, m.trouble.line] for m in members if m.trouble
    ]
    timeouts = [m for m in members if m.trouble and m.trouble.kind == "timeout"]
    last = bool(timeouts) or any(m.is_gone or m.is_behind for m in members)
    seconds = max(m.seconds for m in members)
    header = {"event": "over", "troubles": troubles, "seconds": seconds, "last": last}
    answers = [{**(m.arrays or {}), **mediator.tally.arrays(m.rank)} for m in members]
    send(control, header, {} if troubles else join_ranks(answers))
    return last


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, open or not."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


class ExitCodes:
    """Exit states of the ranks, as the first process of the namespace reports them."""

    def __init__(self, pipe: int, size: int) -> None:
        self.pipe, self.codes = pipe, dict[int, int]()
        os.set_blocking(pipe, False)

    def __call__(self, rank: int) -> str:
        """Return how a rank that closed its socket has ended, as text; wait up to two seconds for
        the report."""
        deadline = time.monotonic() + 2.0
        while rank not in self.codes and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                if not (piece := os.read(self.pipe, END.size)):
                    break
                ended, code = END.unpack(piece)
                self.codes[ended] = code
                continue
            time.sleep(0.005)
        code = self.codes.get(rank)
        return "closed its connection" if code is None else describe_exit(code)


def run_first_process(
    job: Mapping[str, Any],
    files: Mapping[str, bytes],
    doors: Sequence[socket.socket],
    report: int,
    printed: Sequence[int],
    walls: Walls,
) -> NoReturn:
    """Run the first process: fork the ranks, wait for their ends and report them; never return."""
    on_death_of_parent(signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    ranks: dict[int, int] = {}
    for rank, door in enumerate(doors):
        pid = os.fork()
        if not pid:
            others = [other.fileno() for other in doors if other is not door]
            close_all([*others, report])
            run_rank({**job, "rank": rank}, files, door, printed, walls)
        ranks[pid] = rank
    close_all([door.fileno() for door in doors])
    if walls.is_up:
        with contextlib.suppress(OSError):
            syscalls.drop_capabilities()
            syscalls.prctl(syscalls.DUMPABLE, 0)
        on_death_of_parent(signal.SIGKILL)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            signal.pause()
            continue
        if pid in ranks:
            code = os.waitstatus_to_exitcode(status) if not os.WIFSTOPPED(status) else 0
            os.write(report, END.pack(ranks[pid], code))


def run_rank(
    job: JsonMapping,
    files: Mapping[str, bytes],
    door: socket.socket,
    printed: Sequence[int],
    walls: Walls,
) -> NoReturn:
    """Run one rank: confine the process, and serve calls with the student's files in place; never
    return."""
    on_death_of_parent(signal.SIGKILL)
    try:
        walls.confine_rank(float(job["total"]))
        home = walls.home_of(int(job["rank"]))
        home.mkdir(exist_ok=True)
        for name, content in files.items():
            place = home / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        os.chdir(home)
        redirect_output(printed[int(job["rank"])], door)
        walls.seal(home)
        student = Student(job, home, door)
        student.prepare()
        send(door, {"event": "confined", "call": -1})
    except BaseException as error:  # nothing of the student's has run, and nothing will
        with contextlib.suppress(OSError):
            why = plain_text(f"a rank cannot be confined: {type(error).__name__}: {error}")
            send(door, {"event": "broken", "call": -1, "why": why})
        os._exit(1)
    try:
        student.serve()
    except BaseException:  # the mediator is gone
        os._exit(1)
    os._exit(0)


def redirect_output(printed: int, door: socket.socket) -> None:
    """Redirect Python's output to ``printed`` and libraries' output to nowhere; close all other
    descriptors but that of ``door``."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        nothing = os.open(os.devnull, flags)
        os.dup2(nothing, descriptor)
    low, high = sorted((door.fileno(), printed))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, 4096)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(printed, "w", 1, "utf-8", "replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "replace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore
