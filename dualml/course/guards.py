"""What a student's code may not do in its process, and how that is noticed.

Python tells an audit hook of files, processes, sockets and imports before they happen (PEP 578);
one that a function of the student's file is the cause of is refused unless it is allowed. The
limits of the system (`resource`) hold for memory, files and processor time whatever the cause.

This stops mistakes and simple tricks. It is no sandbox: code that calls the system by itself (with
ctypes' memory, say) passes. Code of people whom nobody knows belongs into a container.
"""

from __future__ import annotations

import builtins
import importlib
import ipaddress
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

#: Bytes of memory beyond what the framework has taken, of one file, and of all that is printed.
MEMORY, FILE = 2 << 30, 32 << 20
#: Events that start a process or end another one, or look into the memory of this one.
REFUSED = {
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill",
    "os.killpg", "subprocess.Popen", "pty.spawn", "signal.pthread_kill", "ctypes.dlopen",
    "sys.addaudithook", "builtins.input", "builtins.breakpoint",
}  # fmt: skip
#: Events with a path that would be changed, and which of their arguments it is.
CHANGES = {
    "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.link": (1,),
    "os.symlink": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,), "shutil.move": (0, 1), "shutil.copyfile": (1,),
}  # fmt: skip
WATCHED = {"open", "socket.connect", "socket.bind", *REFUSED, *CHANGES}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(RuntimeError):
    """A student's code tried what an exercise does not need."""


class Guard:
    """The audit hook.

    Args:
        files: names of the student's files, whole.
        folder: where they may write.
        secret: folders whose files they may not read: our solutions.
        banned: dotted names of modules that they may not import.
    """

    def __init__(
        self, files: Sequence[str], folder: Path, secret: Sequence[Path], banned: Sequence[str]
    ) -> None:
        self.files, self.folder = frozenset(files), folder.resolve()
        self.secret, self.banned = [path.resolve() for path in secret], tuple(banned)
        self.ours = tuple(f"{path}{os.sep}" for path in secret)
        self.first: tuple[str, int] | None = None  # what was refused first, and on which line
        self.busy = False

    def install(self) -> None:
        sys.addaudithook(self.hook)
        sys.meta_path.insert(0, self)
        imported, by_name = builtins.__import__, importlib.import_module

        def guarded(name: str, *rest: Any, **more: Any) -> Any:
            caller = above(1)
            if caller is not None and caller.f_code.co_filename in self.files:
                parts = list(rest[2] or ()) if len(rest) > 2 else list(more.get("fromlist") or ())
                for dotted in (name, *(f"{name}.{part}" for part in parts)):
                    self.no_solution(dotted, caller)
            return imported(name, *rest, **more)

        def guarded_by_name(name: str, *rest: Any, **more: Any) -> Any:
            caller = above(1)
            if caller is not None and caller.f_code.co_filename in self.files:
                self.no_solution(name, caller)
            return by_name(name, *rest, **more)

        builtins.__import__ = guarded
        importlib.import_module = guarded_by_name

    def find_spec(self, name: str, *_: Any) -> None:
        """Of a module that is not imported yet, whoever asks for it: finds nothing."""
        frame = self.culprit("import")
        if frame is not None:
            self.no_solution(name, frame)

    def no_solution(self, name: str, frame: FrameType) -> None:
        if any(name == b or name.startswith(f"{b}.") for b in self.banned):
            self.refuse(f"import {name}", frame.f_lineno)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy or event not in WATCHED:
            return
        self.busy = True
        try:
            frame = self.culprit(event)
            if frame is not None and (why := self.reason(event, arguments)):
                self.refuse(why, frame.f_lineno)
        finally:
            self.busy = False

    def culprit(self, event: str) -> FrameType | None:
        """The function of the student's that this comes from. What an import does on its way
        (compiled files, libraries) is its own doing, and what our communicator does is ours."""
        frame = above(2)  # after this class's own
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame
            name = frame.f_code.co_filename
            if event != "import" and ("importlib" in name or name.startswith(self.ours)):
                return None
            frame = frame.f_back
        return None

    def reason(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        """Why it is refused; None where it is allowed."""
        if event in REFUSED:
            return {"builtins.input": "input()"}.get(event, event)
        if event in CHANGES:
            for position in CHANGES[event]:
                path = arguments[position] if position < len(arguments) else None
                if path is not None and not self.inside(path):
                    return f"{event} {path}"
            return None
        if event == "open":
            path, _, flags = (*arguments, 0, 0)[:3]
            if isinstance(path, int) or path is None:
                return None
            if isinstance(flags, int) and flags & WRITES and not self.inside(path):
                return f"write {os.fsdecode(path)}"
            whole = self.whole(path)
            hidden = any(whole.is_relative_to(folder) for folder in self.secret)
            return f"read {os.fsdecode(path)}" if hidden else None
        address = arguments[1] if len(arguments) > 1 else None
        host = address[0] if isinstance(address, tuple) and address else "127.0.0.1"
        return None if loopback(str(host)) else f"{event} {host}"

    def whole(self, path: Any) -> Path:
        return Path(os.path.realpath(os.fsdecode(path)))

    def inside(self, path: Any) -> bool:
        whole = self.whole(path)
        return whole.is_relative_to(self.folder) or str(whole) == os.devnull

    def refuse(self, what: str, line: int) -> None:
        self.first = self.first or (what, line)
        raise Forbidden(what)


def above(count: int) -> FrameType | None:
    """The frame so many calls above the one that asks; None where there is none: a thread of a
    library in C++ imports, too."""
    try:
        return sys._getframe(count + 1)
    except ValueError:
        return None


def loopback(host: str) -> bool:
    if host in ("localhost", ""):
        return host != ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def limit(seconds: float, memory: int = MEMORY) -> None:
    """Bound what the system gives this process from now on."""
    taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    cpu = int(spent + seconds * (os.cpu_count() or 1)) + 5
    for kind, most in (
        (resource.RLIMIT_AS, taken + memory),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, hard))


def ready_made(modules: Mapping[str, Any], names: Sequence[str], refuse: Any) -> None:
    """Let the classes and functions of these dotted names, where they are, call ``refuse`` instead
    of doing what they do."""
    for dotted in names:
        parent, _, name = dotted.rpartition(".")
        holder = modules.get(parent)
        if holder is not None and hasattr(holder, name):
            found = getattr(holder, name)
            if isinstance(found, type):
                found.__init__ = stopped(dotted, refuse)  # type: ignore[misc]
            else:
                setattr(holder, name, stopped(dotted, refuse))


def stopped(dotted: str, refuse: Any) -> Any:
    def stop(*arguments: Any, **options: Any) -> None:
        refuse(dotted)

    return stop
