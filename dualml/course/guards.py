"""Guard against unwanted actions of a student's code in its process, with messages for the student.

Python reports files, processes, sockets and imports to an audit hook before they happen (PEP 578).
An event that a function of the student's file caused is refused with its line, unless it is
allowed. The guard gives advice and no security: anyone can bypass it on purpose. Security comes
from `dualml.course.isolation`; on a machine without it, this guard and the system's limits are the
only protection.
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

from dualml.course.forbidden import CHANGES, FORBIDDEN_EVENTS

#: Modules of the frameworks that contain only a ready-made optimizer.
OWN_MODULE = re.compile(
    r"(torch\.optim|mindspore\.(nn|mint|experimental)\.optim)\.(?!optimizer|lr_scheduler|swa_utils)\w+"
)
#: File name of code that refuses to work.
DISABLED = "<ready-made>"
#: Audit events that the guard examines.
WATCHED_EVENTS = {"open", *FORBIDDEN_EVENTS, *CHANGES}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(RuntimeError):
    """Error: a student's code tried an action that no exercise needs."""


class Guard:
    """The audit hook.

    Attributes:
        current: the guard of this process, or None.

    Args:
        files: absolute names of the student's files.
        folder: folder in which they may write.
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
        """Return the line of the student's files that is being executed, the innermost one; 0 if
        none is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in self.files:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def install(self) -> None:
        """Install the audit hook and guarded versions of Python's import functions, for the rest of
        the process."""
        Guard.current = self
        sys.addaudithook(self.hook)
        sys.meta_path.insert(0, self)
        imported, by_name = builtins.__import__, importlib.import_module

        def guarded(name: str, *rest: Any, **more: Any) -> Any:
            caller = caller_frame(1)
            if caller is not None and caller.f_code.co_filename in self.files:
                parts = list(rest[2] or ()) if len(rest) > 2 else list(more.get("fromlist") or ())
                for dotted in (name, *(f"{name}.{part}" for part in parts)):
                    self.check_import(dotted, caller)
            return imported(name, *rest, **more)

        def guarded_by_name(name: str, *rest: Any, **more: Any) -> Any:
            caller = caller_frame(1)
            if caller is not None and caller.f_code.co_filename in self.files:
                self.check_import(name, caller)
            return by_name(name, *rest, **more)

        builtins.__import__ = guarded
        importlib.import_module = guarded_by_name

    def find_spec(self, name: str, *_: Any) -> None:
        """Find no module, but raise `Forbidden` for a banned one that is not imported yet if a
        student's function is among the callers, also if another module imports it for them."""
        frame = self.culprit("import")
        if frame is not None:
            self.check_import(name, frame)

    def check_import(self, name: str, frame: FrameType) -> None:
        """Raise `Forbidden` for the import of a banned module from a student's frame."""
        if any(name == b or name.startswith(f"{b}.") for b in self.banned):
            self.refuse(f"import {name}", frame.f_lineno)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise `Forbidden` for an audit event that the student's code caused, unless it is
        allowed; other events pass."""
        if self.busy or event not in WATCHED_EVENTS:
            return
        self.busy = True
        try:
            frame = self.culprit(event)
            if frame is not None and (why := self.refusal_reason(event, arguments)):
                self.refuse(why, frame.f_lineno)
        finally:
            self.busy = False

    def culprit(self, event: str) -> FrameType | None:
        """Return the student's frame that caused an audit event, or None.

        Side effects of an import (compiled files, libraries) and actions of our communicator are
        not attributed to the student.
        """
        frame = caller_frame(2)  # after this class's own
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame
            name = frame.f_code.co_filename
            if event != "import" and ("importlib" in name or name.startswith(self.ours)):
                return None
            frame = frame.f_back
        return None

    def refusal_reason(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        """Return what an event would do, as text for the error, if it is refused; None if it is
        allowed."""
        if event in FORBIDDEN_EVENTS:
            return {"builtins.input": "input()", "socket.__new__": "socket"}.get(event, event)
        if event in CHANGES:
            for position in CHANGES[event]:
                path = arguments[position] if position < len(arguments) else None
                if path is not None and not self.is_writable(path):
                    return f"{event} {path}"
            return None
        if event == "open":
            path, _, flags = (*arguments, 0, 0)[:3]
            if isinstance(path, int) or path is None:
                return None
            if isinstance(flags, int) and flags & WRITES and not self.is_writable(path):
                return f"write {os.fsdecode(path)}"
            whole = self.real_path(path)
            hidden = any(whole.is_relative_to(folder) for folder in self.secret)
            return f"read {os.fsdecode(path)}" if hidden else None
        return None

    def real_path(self, path: Any) -> Path:
        """Return the absolute path without symbolic links."""
        return Path(os.path.realpath(os.fsdecode(path)))

    def is_writable(self, path: Any) -> bool:
        """Return whether a path may be changed: it lies in the student's folder, or is the null
        device."""
        whole = self.real_path(path)
        return whole.is_relative_to(self.folder) or str(whole) == os.devnull

    def refuse(self, what: str, line: int) -> None:
        """Record the first refused action, and raise `Forbidden`."""
        self.first = self.first or (what, line)
        raise Forbidden(what)


def caller_frame(count: int) -> FrameType | None:
    """Return the frame ``count`` calls above the caller; None if there is none, as in a C++
    library's thread."""
    try:
        return sys._getframe(count + 1)
    except ValueError:
        return None


def disable_ready_made(names: Sequence[str]) -> None:
    """Disable the classes and functions of these dotted names, if their module is imported and has
    them.

    Their code is replaced in place, so that it is disabled under any name; so is that of all other
    functions of an optimizer's own module, on which they depend. Compiled functions have no code
    and are replaced under their name only.
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
    """Disable all methods that a class itself defines, getters of properties included, by
    `disable_function`."""
    for value in list(vars(found).values()):
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        value = value.fget if isinstance(value, property) else value
        if isinstance(value, FunctionType):
            disable_function(value, dotted)


def disable_function(function: FunctionType, dotted: str) -> None:
    """Replace the code of a function, in place, by one that refuses to work; for a wrapper, whose
    code must keep its closure, that of the wrapped functions."""
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
    """Replace the code of a function by one that refuses to work."""
    code = compile(f"def f(*a, **k): _refuse_ready_made({dotted!r})", DISABLED, "exec")
    function.__globals__["_refuse_ready_made"] = refuse_ready_made
    function.__code__ = next(c for c in code.co_consts if isinstance(c, CodeType))


def make_refusal(dotted: str) -> Any:
    """Return a function that takes any arguments and raises `Forbidden` with the text
    ``dotted``."""

    def stop(*arguments: Any, **options: Any) -> None:
        refuse_ready_made(dotted)

    return stop


def refuse_ready_made(dotted: str) -> None:
    """Raise `Forbidden` for the use of ``dotted``, a ready-made solution to what the student must
    write; the guard of this process, if there is one, records it."""
    if Guard.current is None:
        raise Forbidden(dotted)
    Guard.current.refuse(dotted, Guard.current.line())
