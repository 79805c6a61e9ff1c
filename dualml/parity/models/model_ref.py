"""References to the functions that build models, so that another process can import them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dualml.common.errors import UserError, did_you_mean

#: Environment variable set in workers, so that an imported script does not compare again.
COMPARING_VARIABLE = "DUALML_COMPARING"
#: Hint of an error about a model that a worker cannot build.
MODEL_HINT = "pass a class, a function without arguments, or 'module:Name' or 'file.py:Name'"


def to_import_spec(thing: Any, what: str) -> dict[str, Any]:
    """Return the import spec of a class or function: a dict with ``module``, ``file`` (its path or
    None) and ``name``; text is read by `parse_import_spec`.

    Args:
        what: name of the argument in error messages, such as ``torch_module``.

    Raises:
        UserError: a live instance, a lambda, something inside a function or typed in at a prompt, a
            file that does not exist.
    """
    if isinstance(thing, str):
        return parse_import_spec(thing, what)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        kind = type(thing).__name__
        raise UserError(
            f"{what} is a live {kind}: each framework runs in a process of its own, which builds "
            f"its model itself; {MODEL_HINT} (here perhaps {kind} itself, or a function that "
            "returns it)"
        )
    name, module = thing.__qualname__, thing.__module__
    if "<" in name:
        kind = "a lambda" if "<lambda>" in name else "inside a function"
        raise UserError(
            f"{what} is {kind} ({module}.{name}) and cannot be imported by another process; "
            "define it at the top of a file"
        )
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None and module == "__main__":
        raise UserError(
            f"{what} ({name}) was typed in, not read from a file; save it in a file and pass "
            "'file.py:Name'"
        )
    return {"module": module, "file": file and str(Path(file).resolve()), "name": name}


def parse_import_spec(text: str, what: str) -> dict[str, Any]:
    """Return the import spec of ``module:Name`` or ``file.py:Name``: a dict with ``module``,
    ``file`` (its path or None) and ``name``. Nothing is imported.

    Args:
        what: name of the argument in error messages.

    Raises:
        UserError: another form, or a file that does not exist.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise UserError(f"{what} must read 'module:Name' or 'file.py:Name'; received {text!r}")
    if not place.endswith(".py"):
        return {"module": place, "file": None, "name": name}
    path = Path(place).expanduser()
    if not path.is_file():
        beside = (one.name for one in path.parent.glob("*.py"))
        hint = did_you_mean(path.name, beside, fallback="")
        raise UserError(f"{what}: there is no file {place!r} (looked in {Path.cwd()}){hint}")
    return {"module": path.stem, "file": str(path.resolve()), "name": name}


def load_builder(job: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the class or function of an import spec ``job`` and return it.

    Raises:
        UserError: it cannot be imported (the message has the file and the line of the reason), does
            not exist, or is not callable.
    """
    name, where = job["name"], job["file"] or job["module"]
    own = "" if job["file"] else f" (of a file of your own give the path, as {where}.py:{name})"
    with report_as_user_error(f"{where} cannot be imported{own}", job["file"]):
        thing: Any = import_user_module(job["module"], job["file"])
    for part in name.split("."):
        members = vars(thing)
        if part not in members:
            known = [n for n, v in members.items() if callable(v) and not n.startswith("_")]
            raise UserError(f"{where} has no {name!r}; it has {', '.join(known) or 'none'}")
        thing = getattr(thing, part)
    if not callable(thing):
        raise UserError(f"{name} of {where} is a live {type(thing).__name__}; {MODEL_HINT}")
    builder: Callable[..., Any] = thing
    return builder


def import_user_module(name: str, file: str | None) -> ModuleType:
    """Import a user's module and return it: by its name if that leads to the file (or ``file`` is
    None), or else from the file, under a name of its own.

    From a file, its folder is put first on `sys.path`, and code under ``if __name__ == "__main__"``
    does not run. Exceptions of the module's code pass unchanged.
    """
    if file is None or (name != "__main__" and find_module_file(name) == file):
        return importlib.import_module(name)
    # Not as __main__: a worker must not run the code under `if __name__ == "__main__"`.
    own = f"_dualml_user_{Path(file).stem}"
    if own in sys.modules and getattr(sys.modules[own], "__file__", None) == file:
        return sys.modules[own]
    if (folder := str(Path(file).parent)) not in sys.path:
        sys.path.insert(0, folder)  # for imports from the file's own folder
    spec = importlib.util.spec_from_file_location(own, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    spec.loader.exec_module(module)
    return module


def find_module_file(name: str) -> str | None:
    """Return the resolved path of the file that an import of this name would read; None if there is
    none. Packages that contain it are imported."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            return str(Path(spec.origin).resolve())
    return None


@contextlib.contextmanager
def report_as_user_error(what: str, file: str | None = None) -> Iterator[None]:
    """Convert exceptions of a user's code within the context to a `UserError` of one line with its
    place.

    Args:
        what: start of the message.
        file: the user's file, to find the line in.

    Raises:
        UserError: in place of whatever was raised; a `UserError` passes unchanged.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what}: {error_reason(error)}{error_place(error, file)}") from error


def error_reason(error: BaseException) -> str:
    """Return type and first line of an exception, at most 400 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -\t")]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(":. ")[:400]


def error_place(error: BaseException, file: str | None) -> str:
    """Return the last line of the user's own file ``file`` that was running, as
    `` (models.py, line 12)``; empty if there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if file and os.path.realpath(frame.filename) == os.path.realpath(file)
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def user_line(error: BaseException, skip: Sequence[str]) -> str:
    """Return the innermost line of the user's code that was running when an error was raised, as
    `` (net.py:28: x = self.up(x))``; empty if there is none.

    Args:
        skip: folders of packages whose lines are not the user's.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*skip, "<"))
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" ({Path(last.filename).name}:{last.lineno}: {last.line})"
