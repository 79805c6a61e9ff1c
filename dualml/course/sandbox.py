"""Runs a student's file: limited processes in a folder of their own, ended whatever happens."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualml.backend import backends
from dualml.course.exercise import Answer, Arrays, Call, File, Trouble
from dualml.course.forbidden import BANNED, READY_MADE
from dualml.course.source import legible
from dualml.files import write_json
from dualml.launch.process import Launch
from dualml.launch.supervise import SECONDARY, died, supervise
from dualml.machine import python

#: Seconds that one call may take, and that the process may take beyond it to say so.
CALL_S, LATE_S = 10.0, 3.0
#: A process that a call has ended is started again for the others, so many times.
AGAIN = 8
#: Bytes of a file that is taken for a program.
SOURCE = 1 << 20
CORE = ("numpy", "dualml.course.guards", "dualml.launch.child")


@dataclass
class Sandbox:
    """Where one file of a student's is run.

    Attributes:
        exercise: which file it is.
        source: the student's file; others beside it that end in ``.py`` go with it.
        seconds: of one call.
        over: whether nobody waits for an answer any more.
    """

    exercise: File
    source: Path
    seconds: float = CALL_S
    over: Callable[[], bool] = lambda: False
    printed: str = field(default="", init=False)

    def answers(
        self, calls: Sequence[Call], done: Callable[[], None] = lambda: None
    ) -> list[Answer]:
        """What comes of each call; ``done`` after each of them."""
        out: dict[int, Answer] = {}
        hung: dict[str, Answer] = {}  # a function that never came back would not another time
        doubted: set[int] = set()
        for ranks in sorted({call.ranks for call in calls}):
            left = [n for n, call in enumerate(calls) if call.ranks == ranks]
            for _ in range(AGAIN):
                out |= {n: hung[calls[n].target] for n in left if calls[n].target in hung}
                left = [n for n in left if n not in out]
                if not left or self.over():
                    break
                attempted = self.attempt([calls[n] for n in left], ranks, done)
                found = {left[n]: answer for n, answer in attempted.items()}
                # A busy machine makes ranks wait, too: it is believed when it happens again.
                first = {n for n, a in found.items() if waited(a) and n not in doubted}
                doubted |= first
                out |= {n: answer for n, answer in found.items() if n not in first}
                hung |= {calls[n].target: a for n, a in out.items() if late(a) or waited(a)}
                left = [n for n in left if n not in out]
            # Whatever ended so many calls of a function would have ended the others of it, too.
            ended = {calls[n].target: a for n, a in out.items() if a.trouble is not None}
            none = Answer(trouble=Trouble("died"))
            out |= {n: ended.get(calls[n].target, none) for n in left}
        return [out[n] for n in range(len(calls))]

    def attempt(
        self, calls: Sequence[Call], ranks: int, done: Callable[[], None]
    ) -> dict[int, Answer]:
        """What comes of the calls until one of them ends the process."""
        with tempfile.TemporaryDirectory(prefix="dualml-") as temporary:
            folder = Path(temporary)
            launches = self.prepare(folder, calls, ranks)
            heard = Heard(ranks, done)
            limit = self.seconds + LATE_S
            first = 30.0  # joining the others, too
            longest = max(limit, first)
            ended = supervise(launches, heard, limit=longest, silence=longest, over=self.over)
            self.printed = last(folder / "printed0")
            found = {
                n: self.collect(folder, n, call, heard)
                for n, call in enumerate(calls)
                if heard.over(n)
            }
            if heard.imported is not None:
                whole = self.placed(heard.imported)
                return {n: Answer(trouble=whole) for n in range(len(calls))}
            if heard.now is not None and heard.now not in found:
                slow = "longer" in (ended.reason or "") or "silent" in (ended.reason or "")
                kind = "timeout" if slow or ended.reason else "died"
                why = died(ended.code) if kind == "died" and ended.code else ""
                found[heard.now] = Answer(trouble=Trouble(kind, why, rank=ended.rank))
            elif heard.now is None and (ended.code or ended.reason):
                result = ended.results.get(ended.rank, {})
                why = str(result.get("reason") or ended.reason or died(ended.code))
                return {n: Answer(trouble=Trouble("died", why)) for n in range(len(calls))}
        return found

    def prepare(self, folder: Path, calls: Sequence[Call], ranks: int) -> list[Launch]:
        """The folder of the processes, and how each of them is started."""
        for name in ("in", "out", "work", "board"):
            (folder / name).mkdir()
        for path in self.source.parent.rglob("*.py"):
            target = folder / "work" / path.relative_to(self.source.parent)
            if path.is_file() and path.stat().st_size <= SOURCE and len(target.parts) < 20:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for number, call in enumerate(calls):
            for rank, arrays in enumerate(call.arrays):
                plain: dict[str, Any] = dict(arrays)
                np.savez(folder / "in" / f"{number}.{rank}.npz", **plain)
        backend = self.exercise.backend
        info = backends()[backend or "numpy"]
        drive = f"{info.package}.course.drive" if backend else "dualml.course.drive"
        job = {
            "backend": info.name,
            "drive": drive,
            "file": self.source.name,
            "size": ranks,
            "comm": any(call.options.get("comm") for call in calls),
            # Comparing what the ranks ask for takes longer than what they ask for.
            "check": not any(call.options.get("unchecked") for call in calls),
            "seconds": self.seconds,
            "banned": BANNED,
            "ready_made": READY_MADE.get(backend, []),
            "calls": [
                {"kind": c.kind, "target": c.target, "options": dict(c.options), "ranks": c.ranks}
                for c in calls
            ],
        }
        write_json(folder / "job.json", job)
        environ = {**info.environ(1), "PYTHONDONTWRITEBYTECODE": "1"}
        return [
            Launch(
                python("-m", "dualml.course.student", str(folder), str(rank)),
                environ,
                folder / f"rank{rank}.log",
                (*info.preload, *CORE, *((drive,) if info.preload else ())),
            )
            for rank in range(ranks)
        ]

    def collect(self, folder: Path, number: int, call: Call, heard: Heard) -> Answer:
        """The answer to a call that is over."""
        if (trouble := heard.troubles.get(number)) is not None:
            return Answer(trouble=self.placed(trouble))
        arrays: list[Arrays] = []
        try:
            for rank in range(call.ranks):
                path = folder / "out" / f"{number}.{rank}.npz"
                with np.load(path, allow_pickle=False) as stored:
                    arrays.append({name: stored[name] for name in stored.files})
        except (OSError, ValueError, KeyError) as error:
            return Answer(trouble=Trouble("died", str(error)))
        return Answer(arrays, seconds=heard.seconds.get(number, 0.0))

    def placed(self, trouble: Trouble) -> Trouble:
        """With the text of its line."""
        lines = legible(self.source).splitlines()
        text = lines[trouble.line - 1].strip() if 0 < trouble.line <= len(lines) else ""
        return replace(trouble, file=self.source.name, text=text)


def late(answer: Answer) -> bool:
    return answer.trouble is not None and answer.trouble.kind == "timeout"


def waited(answer: Answer) -> bool:
    """Whether a rank waited for another one in vain, or lost it."""
    trouble = answer.trouble
    return trouble is not None and trouble.kind == SECONDARY and "disagree" not in trouble.message


class Heard:
    """What the processes say."""

    def __init__(self, ranks: int, done: Callable[[], None]) -> None:
        self.ranks, self.done = ranks, done
        self.now: int | None = None
        self.finished: dict[int, set[int]] = {}
        self.troubles: dict[int, Trouble] = {}
        self.seconds: dict[int, float] = {}
        self.imported: Trouble | None = None

    def __call__(self, rank: int, event: dict[str, Any]) -> None:
        name, number = event.get("event"), event.get("call")
        if name == "trial":
            self.now = max(int(number or 0), -1 if self.now is None else self.now)
        elif name in ("answer", "trouble") and isinstance(number, int):
            if name == "trouble":
                trouble = Trouble(
                    str(event.get("kind")), str(event.get("message")), "",
                    int(event.get("line") or 0), "", rank,
                )  # fmt: skip
                if number < 0:
                    self.imported = trouble
                    return
                known = self.troubles.get(number)
                if known is None or steps_from_cause(trouble) < steps_from_cause(known):
                    self.troubles[number] = trouble
            self.finished.setdefault(number, set()).add(rank)
            self.seconds[number] = float(event.get("seconds", 0.0))
            if self.over(number):
                self.done()

    def over(self, number: int) -> bool:
        """Whether every rank has answered it, or one of them has failed."""
        return number in self.troubles or len(self.finished.get(number, ())) == self.ranks


def steps_from_cause(trouble: Trouble) -> int:
    """How far a rank's error is from what is wrong: an error of its own, one that it waited into,
    one that another rank's end has left."""
    if "is gone" in trouble.message:
        return 2
    return int(trouble.kind == SECONDARY)


def last(log: Path, size: int = 4000) -> str:
    """The end of what was printed."""
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - size))
        return stream.read().decode("utf-8", "replace")
    return ""
