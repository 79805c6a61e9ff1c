"""Execution of a student's file in isolation, call by call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.bounded_io import Header
from dualml.common.json_types import JsonObject
from dualml.course.exercise import Answer, Arrays, ExerciseCall, ExerciseFile, Trouble
from dualml.course.forbidden import BANNED
from dualml.course.frames import join_ranks, split_by_rank
from dualml.course.grading.unpacking import SubmissionRefused, walk
from dualml.course.isolation.client import drive_module, open_cell
from dualml.course.isolation.detect import WALLS, Isolation
from dualml.course.source import read_legible, read_program
from dualml.course.unfinished import is_below_code
from dualml.launch.child import SECONDARY

#: Time limit of one call in seconds.
CALL_S = 10.0
#: Seconds between two messages of the warden: loading the file on a busy machine, or a call.
SILENT_S = 90.0
#: Time limit of all calls of a file: a constant, and seconds per call, so that code which is slow
#: in every call ends, too.
BUDGET_S, BUDGET_CALL_S = 90.0, 1.5
#: Maximum number of restarts of a process after calls have ended it.
MAX_RESTARTS = 8
#: Limits of the other programs in a student's folder: bytes of one, bytes of all, number of files,
#: characters of a path.
MAX_FILE_BYTES, MAX_TOTAL_BYTES, MAX_FILES, MAX_PATH_CHARS = 200_000, 8 << 20, 200, 150
#: Kinds of calls whose ranks communicate by the framework's own means.
NETWORKED = frozenset({"remote", "remote_tables", "group"})


@dataclass
class Sandbox:
    """Execution environment of one file of a student.

    Attributes:
        exercise: the exercise.
        source: the student's file; other ``.py`` files in its folder are also available.
        seconds: time limit of one call.
        is_cancelled: function that returns whether nobody waits for an answer any more.
        isolation: isolation of the student's code.
        uses_framework_comm: whether ranks get the framework's own communicator, for measurements,
            without isolation.
    """

    exercise: ExerciseFile
    source: Path
    seconds: float = CALL_S
    is_cancelled: Callable[[], bool] = lambda: False
    isolation: Isolation = WALLS
    uses_framework_comm: bool = False
    printed: str = field(default="", init=False)

    def answers(
        self, calls: Sequence[ExerciseCall], done: Callable[[], None] = lambda: None
    ) -> list[Answer]:
        """Run the calls and return their answers in the order of ``calls``; ``done`` is called
        after each call that was made. Calls of a function that has exceeded the time limit are not
        made again, and get the same answer; calls that are not reached get an earlier error of
        their function, else a trouble ``timeout`` or ``died``.

        Raises:
            MachineFault: the machine is at fault.
            OSError: the system does not allow the isolation.
        """
        out: dict[int, Answer] = {}
        deadline = time.monotonic() + BUDGET_S + BUDGET_CALL_S * len(calls)
        hung: dict[str, Answer] = {}  # a function that never came back would not another time
        for ranks, network in sorted({group_key(call) for call in calls}):
            left = [n for n, call in enumerate(calls) if group_key(call) == (ranks, network)]
            for _ in range(MAX_RESTARTS):
                out |= {n: hung[calls[n].target] for n in left if calls[n].target in hung}
                left = [n for n in left if n not in out]
                if not left or self.is_cancelled() or time.monotonic() > deadline:
                    break
                wanted = [calls[n] for n in left]
                attempted = self.attempt(wanted, ranks, network, done, deadline)
                found = {left[n]: answer for n, answer in attempted.items()}
                out |= found
                hung |= {
                    calls[n].target: a
                    for n, a in found.items()
                    if is_timeout(a) or is_wait_timeout(a)
                }
                left = [n for n in left if n not in out]
            # After this many failed calls of a function its other calls would fail, too.
            ended = {calls[n].target: a for n, a in out.items() if a.trouble is not None}
            slow = time.monotonic() > deadline
            none = Answer(trouble=Trouble("timeout" if slow else "died"))
            out |= {n: ended.get(calls[n].target, none) for n in left}
        return [out[n] for n in range(len(calls))]

    def attempt(
        self,
        calls: Sequence[ExerciseCall],
        ranks: int,
        network: bool,
        done: Callable[[], None],
        deadline: float,
    ) -> dict[int, Answer]:
        """Run calls until one of them ends the processes, the ``deadline`` has passed or the check
        is cancelled; keep rank 0's output in ``printed``, and return their answers by index. If the
        file cannot be loaded, this is the answer to every call, and ``done`` is not called."""
        found: dict[int, Answer] = {}
        with open_cell(self.exercise.backend, ranks, self.isolation, network) as group:
            group.send(self.job(calls, ranks), self.files)
            loaded = group.wait_for_result(SILENT_S, self.is_cancelled)
            if loaded is None:
                return found
            answer = self.read_answer(*loaded, ranks)
            if answer.trouble is not None:
                self.printed = group.tail(0)
                return dict.fromkeys(range(len(calls)), answer)
            for number, call in enumerate(calls):
                group.send(*message_of(call))
                heard = group.wait_for_result(SILENT_S, self.is_cancelled)
                if heard is None:
                    break
                found[number] = self.read_answer(*heard, ranks)
                done()
                if heard[0]["last"] or time.monotonic() > deadline:
                    break
            self.printed = group.tail(0)
        return found

    def job(self, calls: Sequence[ExerciseCall], ranks: int) -> JsonObject:
        """Return the job of a rank: backend, file, number of ranks and limits, which all ``calls``
        share."""
        return {
            "backend": self.exercise.backend or "numpy",
            "drive": drive_module(self.exercise.backend),
            "file": self.source.name,
            "size": ranks,
            "comm": any(call.options.get("comm") for call in calls),
            "real": self.uses_framework_comm,
            "seconds": self.seconds,
            "total": self.seconds * (len(calls) + 1),
            "banned": BANNED,
        }

    @cached_property
    def files(self) -> dict[str, Any]:
        """The student's programs as arrays of their UTF-8 bytes, by their path relative to the
        judged file's folder; those that cannot be read or exceed the limits are left out."""
        home, total = self.source.parent, 0
        kept: dict[str, Any] = {}
        for inside, size in [(Path(self.source.name), 0), *programs_beside(home)]:
            name = str(inside)
            if (
                name in kept
                or size > MAX_FILE_BYTES
                or total + size > MAX_TOTAL_BYTES
                or len(kept) >= MAX_FILES
            ):
                continue
            with contextlib.suppress(ValueError, SyntaxError, LookupError, OSError):
                kept[name] = np.frombuffer(read_program(home / inside).encode(), np.uint8)
                total += size
        return kept

    def read_answer(self, header: Header, arrays: Mapping[str, Any], ranks: int) -> Answer:
        """Parse the warden's answer to a call; of several ranks' errors the one nearest to the
        cause counts (`steps_from_cause`)."""
        troubles = [
            Trouble(str(kind), str(message), "", int(line), "", int(rank))
            for rank, kind, message, line in header["troubles"]
        ]
        if troubles:
            return Answer(trouble=self.with_source_line(min(troubles, key=steps_from_cause)))
        whole: list[Arrays] = list(split_by_rank(arrays, ranks))
        return Answer(whole, seconds=float(header["seconds"]))

    def with_source_line(self, trouble: Trouble) -> Trouble:
        """Return a copy of an error with the name of the student's file and the text of the line;
        ``unwritten`` becomes ``unfinished`` in a function that has code of the student's."""
        lines: list[str] = []
        with contextlib.suppress(OSError):  # an editor may be writing it anew
            lines = read_legible(self.source).splitlines()
        text = lines[trouble.line - 1].strip() if 0 < trouble.line <= len(lines) else ""
        if trouble.kind == "unwritten" and text.startswith("raise"):
            program = "\n".join(lines)
            if is_below_code(program, trouble.line, self.exercise.solution):
                trouble = replace(trouble, kind="unfinished")
        return replace(trouble, file=self.source.name, text=text)


def programs_beside(home: Path) -> list[tuple[Path, int]]:
    """Return the programs (``.py``) in a workspace and its folders, and their sizes in bytes, the
    least nested ones first; those with unprintable or long paths, and those beyond a submission's
    limits, are left out."""
    found: list[tuple[Path, int]] = []
    with contextlib.suppress(SubmissionRefused, OSError):  # as many as a submission may have
        for inside, size in walk(home):
            if (
                inside.suffix == ".py"
                and str(inside).isprintable()
                and len(str(inside)) <= MAX_PATH_CHARS
            ):
                found.append((inside, size))
    return sorted(found, key=lambda each: (len(each[0].parts), each[0]))


def group_key(call: ExerciseCall) -> tuple[int, bool]:
    """Return the number of ranks that a call needs, and whether they need a network."""
    return call.ranks, call.kind in NETWORKED


def message_of(call: ExerciseCall) -> tuple[Header, Arrays]:
    """Return a call as a message to the warden."""
    header = {"kind": call.kind, "target": call.target, "options": dict(call.options)}
    return header, join_ranks(call.arrays)


def is_timeout(answer: Answer) -> bool:
    """Return whether a call ended by its time limit."""
    return answer.trouble is not None and answer.trouble.kind == "timeout"


def is_wait_timeout(answer: Answer) -> bool:
    """Return whether a rank waited for another one until the time limit."""
    trouble = answer.trouble
    return (
        trouble is not None and trouble.kind == SECONDARY and "for another rank" in trouble.message
    )


def steps_from_cause(trouble: Trouble) -> int:
    """Return how indirectly a rank's error shows the cause: 0 for an error of its own, 1 for the
    end of its process, 2 for an error caused by waiting."""
    if trouble.kind == "died":
        return 1
    return 2 if trouble.kind == SECONDARY else 0
