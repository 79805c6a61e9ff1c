"""What a student's code should not do in its process, and how that is said to the student.

Python tells an audit hook of files, processes, sockets and imports before they happen (PEP 578);
one that a function of the student's file is the cause of is refused unless it is allowed, with its
line. It is a guide, no wall: whoever means to passes it. The walls are `dualml.course.isolation`;
where a machine has none, this and the limits of the system are all there is.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

#: Modules of the frameworks in which nothing but a ready-made optimizer lies.
OWN_MODULE = re.compile(
    r"(torch\.optim|mindspore\.(nn|mint|experimental)\.optim)\.(?!optimizer|lr_scheduler|swa_utils)\w+"
)
#: The file that code which refuses to work is said to be in.
DISABLED = "<ready-made>"
#: Events that start a process, end another one, reach a network, or look into memory.
REFUSED = {
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill",
    "os.killpg", "subprocess.Popen", "pty.spawn", "signal.pthread_kill", "ctypes.dlopen",
    "sys.addaudithook", "builtins.input", "builtins.breakpoint", "socket.__new__",
}  # fmt: skip
#: Events with a path that would be changed, and which of their arguments it is.
CHANGES = {
    "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.link": (1,),
    "os.symlink": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,), "shutil.move": (0, 1), "shutil.copyfile": (1,),
}  # fmt: skip
WATCHED = {"open", *REFUSED, *CHANGES}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(RuntimeError):
    """A student's code tried what an exercise does not need."""


class Guard:
    """The audit hook.

    Attributes:
        current: that of this process.

    Args:
        files: names of the student's files, whole.
        folder: where they may write.
        secret: folders whose files they may not read: our solutions.
        banned: dotted names of modules that they may not import.
    """

    current: Guard | None = None

    def __init__(
        self, files: Sequence[str], folder: Path, secret: Sequence[Path], banned: Sequence[str]
    ) -> None:
        self.files, self.folder = frozenset(files), folder.resolve()
        self.secret, self.banned = [path.resolve() for path in secret], tuple(banned)
        self.ours = tuple(f"{path}{os.sep}" for path in secret)
        self.first: tuple[str, int] | None = None  # what was refused first, and on which line
        self.busy = False

    def line(self) -> int:
        """Return the line of the student's files that is at work; 0 where none is."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in self.files:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def install(self) -> None:
        Guard.current = self
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
        """Return the student's frame that caused an audit event, or None.

        What an import does on its way (compiled files, libraries) is its own doing, and what our
        communicator does is ours.
        """
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
            return {"builtins.input": "input()", "socket.__new__": "socket"}.get(event, event)
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
        return None

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


def disable_ready_made(names: Sequence[str]) -> None:
    """Let the classes and functions of these dotted names, where they are, refuse to work.

    Their code is replaced in place, so that it is gone for whoever holds them, by whatever name; so
    is that of all other functions of an optimizer's own module, on which they stand. What is
    compiled has no code: it is replaced under its name alone.
    """
    for dotted in names:
        parent, _, name = dotted.rpartition(".")
        holder = sys.modules.get(parent)
        found = getattr(holder, name, None)
        if found is None:
            continue
        if isinstance(found, type):
            disable_class(found, dotted)
            found.__init__ = make_refusal(dotted)  # type: ignore[misc]
        elif isinstance(found, FunctionType):
            disable_function(found, dotted)
        else:
            setattr(holder, name, make_refusal(dotted))
        module = getattr(found, "__module__", None) or ""
        if OWN_MODULE.fullmatch(module):
            for value in list(vars(sys.modules[module]).values()):
                if getattr(value, "__module__", None) != module:
                    continue
                if isinstance(value, type):
                    disable_class(value, dotted)
                elif isinstance(value, FunctionType):
                    disable_function(value, dotted)


def disable_class(found: type, dotted: str) -> None:
    """Replace the code of all methods of a class."""
    for value in list(vars(found).values()):
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        value = value.fget if isinstance(value, property) else value
        if isinstance(value, FunctionType):
            disable_function(value, dotted)


def disable_function(function: FunctionType, dotted: str) -> None:
    """Replace the code of a function, or, of a wrapper, whose code has to have its cells, that of
    the functions in them."""
    pending, seen = [function], set[int]()
    while pending:
        function = pending.pop()
        if id(function) in seen or function.__code__.co_filename == DISABLED:
            continue
        seen.add(id(function))
        if function.__closure__ is None:
            replace_code(function, dotted)
            continue
        for cell in function.__closure__:
            with contextlib.suppress(ValueError):  # an empty one
                if isinstance(cell.cell_contents, FunctionType):
                    pending.append(cell.cell_contents)


def replace_code(function: FunctionType, dotted: str) -> None:
    """Let a function refuse to work."""
    code = compile(f"def f(*a, **k): _refuse_ready_made({dotted!r})", DISABLED, "exec")
    function.__globals__["_refuse_ready_made"] = refuse_ready_made
    function.__code__ = next(c for c in code.co_consts if isinstance(c, CodeType))


def make_refusal(dotted: str) -> Any:
    """Return a function that refuses to do what ``dotted`` does."""

    def stop(*arguments: Any, **options: Any) -> None:
        refuse_ready_made(dotted)

    return stop


def refuse_ready_made(dotted: str) -> None:
    """Refuse what an exercise asks the student to write."""
    if Guard.current is None:
        raise Forbidden(dotted)
    Guard.current.refuse(dotted, Guard.current.line())
