"""The process of one rank: it runs a student's file, call by call, in isolation.

Inputs come from the mediator, and results go back to it. The expected results are not in this
process.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import os
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.course.communicator import StudentCommunicator
from dualml.course.frames import plain_text, receive, send
from dualml.course.guards import Forbidden, Guard
from dualml.course.returned import WrongReturn, find_return_line
from dualml.launch.child import SECONDARY

#: Time limit in seconds of a call with several ranks.
RANKS_S = 6.0
#: Seconds without a call after which the judge is assumed to have ended.
IDLE_S = 3600.0
#: Flags of the statements ``from __future__ import …``.
FUTURE = {name: getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}


class TimeUp(BaseException):
    """Exception of a time limit. It is no `Exception`, so that a student's ``except Exception``
    does not stop it."""


class Student:
    """A student's file in this process.

    Args:
        job: ``file``, ``drive`` (the module that makes the calls), ``rank``, ``size``, ``comm``
            (whether calls are given a communicator), ``real`` (the framework's own),
            ``seconds`` of a call, ``banned`` names of modules.
        home: the folder of the files.
        door: the socket to the mediator.
    """

    def __init__(self, job: Mapping[str, Any], home: Path, door: socket.socket) -> None:
        self.job, self.home, self.door = job, home, door
        self.file = str(home / job["file"])
        self.drive = sys.modules[job["drive"]]
        self.number = -1
        #: Class or function that could not be made → its error.
        self.broken: dict[str, dict[str, Any]] = {}
        self.comm: Any = None

    def prepare(self) -> None:
        """Set up this process for the student's file: temporary folder, `sys.path`, communicator if
        the job has one, `Guard`, and the signal of the time limit."""
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.home)
        sys.path.insert(0, str(self.home))  # of several files, one may import another
        sys.dont_write_bytecode = True
        if self.job["real"]:
            self.comm = join_ranks(self.job, self.home)
        elif self.job["comm"]:
            rank, size = self.job["rank"], self.job["size"]
            convert = self.drive.to_array, self.drive.to_tensor, self.drive.fill
            self.comm = StudentCommunicator(self.door, rank, size, *convert)
        files = [str(path) for path in self.home.rglob("*.py")]
        self.guard = Guard(
            files, self.home, package_folders(self.job["banned"]), self.job["banned"]
        )
        self.guard.install()
        signal.signal(signal.SIGALRM, raise_time_up)

    def serve(self) -> None:
        """Load the file and answer calls; return if the file cannot be loaded, else raise `OSError`
        when the mediator closes the connection or sends nothing for `IDLE_S`."""
        module: ModuleType | None = None
        with self.trouble(self.job["seconds"]):
            module = self.load()
            send(self.door, {"event": "answer", "call": -1})
        while module is not None:
            header, arrays = receive(self.door, IDLE_S)
            if "number" in header:  # not a reply that came too late
                self.answer_call(module, header, arrays)

    def load(self) -> ModuleType:
        """Load the student's file as a module, statement by statement, so that a class or function
        that fails does not prevent the others; an error of another statement is raised."""
        text = Path(self.file).read_text("utf-8")
        tree = ast.parse(text, self.file)
        module = ModuleType("submitted")
        module.__file__ = self.file
        sys.modules["submitted"] = module
        flags = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                flags |= sum(FUTURE.get(name.name, 0) for name in node.names)
            code = compile(ast.Module([node], []), self.file, "exec", flags, dont_inherit=True)
            try:
                exec(code, module.__dict__)
            except Exception as error:
                if not isinstance(node, ast.ClassDef | ast.FunctionDef) or self.guard.first:
                    raise
                self.broken[node.name] = self.describe_error(error)
        return module

    def answer_call(self, module: ModuleType, header: Mapping[str, Any], arrays: Any) -> None:
        """Make one call and send its result, or the error that ended it."""
        self.number, target = int(header["number"]), str(header["target"])
        if target in self.broken:
            self.send_trouble(self.broken[target])
            return
        seconds = float(header["seconds"])
        with self.trouble(seconds):
            began = time.monotonic()
            more: dict[str, Any] = {}
            if self.comm is not None:
                more["comm"] = self.comm
                self.comm.number, self.comm.waiting = self.number, False
                self.comm.silent = bool(header["silent"])
            if header["options"].get("reloaded"):
                module = self.load()  # what a class keeps for all its objects begins anew
            run = getattr(self.drive, str(header["kind"]))
            out = run(module, target, header["options"], arrays, **more)
            if not isinstance(out, dict):
                raise TypeError(f"expected arrays by name, received {type(out).__name__}")
            signal.setitimer(signal.ITIMER_REAL, 0)
            taken = time.monotonic() - began
            named = {str(name): a for name, a in out.items()}
            send(self.door, {"event": "answer", "call": self.number, "seconds": taken}, named)

    @contextlib.contextmanager
    def trouble(self, seconds: float) -> Iterator[None]:
        """Limit the block to ``seconds``, and report an error in it to the judge instead of raising
        it; end the process after a timeout in a call with a communicator, whose messages may be
        half read."""
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            said = self.describe_error(error)
            late = isinstance(error, TimeUp)
            waiting = self.comm is not None and self.comm.waiting
            if late and waiting:
                said |= {"kind": SECONDARY, "message": f"waited {seconds:g} s for another rank"}
            self.send_trouble(said)
            if late and self.comm is not None:  # a message may be half read
                sys.stdout.flush()
                os._exit(1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def send_trouble(self, said: Mapping[str, Any]) -> None:
        """Send an error to the judge."""
        send(self.door, {"event": "trouble", "call": self.number, **said})

    def describe_error(self, error: BaseException) -> JsonObject:
        """Describe an exception as the judge expects it: ``kind``, ``message``, ``line``. If the
        guard has refused an action, that is the error, and the guard's record is cleared."""
        if self.guard.first is not None:
            what, line = self.guard.first
            self.guard.first = None
            return {"kind": "forbidden", "message": plain_text(what), "line": line}
        kinds = {NotImplementedError: "unwritten", TimeUp: "timeout", SyntaxError: "syntax"}
        kind = next((k for t, k in kinds.items() if isinstance(error, t)), type(error).__name__)
        line = getattr(error, "lineno", 0) or 0 if isinstance(error, SyntaxError) else 0
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame.lineno for frame in frames if frame.filename == self.file]
        try:
            message = str(error.msg if isinstance(error, SyntaxError) else error)
        except Exception:
            message = ""
        # MindSpore's compiled code has no frames; the lines are in the message, after a banner.
        message = message[:100_000]
        pattern = rf"In file {re.escape(self.file)}:(\d+)"
        own = own or [int(n) for n in re.findall(pattern, message)]
        lines = [text.strip() for text in message.splitlines() if text.strip("- ")]
        # The first line of a remote call's error says only where it happened.
        first = " ".join(lines[: 2 if lines and "On WorkerInfo(" in lines[0] else 1])
        if isinstance(error, Forbidden):
            kind = "forbidden"
        if isinstance(error, WrongReturn):
            kind = "returned"
            own = own or [find_return_line(Path(self.file).read_text("utf-8"), error.function)]
        number = line or (own[-1] if own else 0)
        return {"kind": plain_text(kind, 200), "message": plain_text(first), "line": number}


def join_ranks(job: Mapping[str, Any], home: Path) -> Any:
    """Connect the framework's own communicator of this rank with those of all ranks, which call
    this together; it needs a process without isolation."""
    from dualml.algorithms.communicator import FileStore, RankContext
    from dualml.backend import ProcessGroups, backends

    backend = backends()[job["backend"]].create("cpu", 1)
    board = FileStore(home.parent / "board")
    place = RankContext(job["rank"], job["size"], board, timeout=RANKS_S)
    return backend.require_capability(ProcessGroups).connect(place)


def package_folders(packages: Sequence[str]) -> list[Path]:
    """Return the folders in which this process finds packages, which are imported for it; packages
    that it does not find are left out; the judge may have others."""
    found = []
    for package in packages:
        with contextlib.suppress(ImportError, OSError):
            found.append(Path(str(resources.files(package))))
    return found


def raise_time_up(number: int, frame: FrameType | None) -> None:
    """Raise `TimeUp`, as a signal handler."""
    raise TimeUp
