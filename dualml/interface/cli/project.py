"""The project's file of defaults: the nearest ``pyproject.toml`` with a table ``[tool.dualml]``.

The file comes with a folder that somebody else may have made. It is used only if nobody but the
user and root can have written it, and it may set only the options in `ALLOWED`.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import open_to_read
from dualml.common.parse import MAX_TOML_CHARS, from_toml

PROJECT = "pyproject.toml"
#: Options that a project may set, of any command that has them. Where files go to or
#: come from, which addresses and machines are used, what is started, removed or sent, is for
#: the user to decide: on the command line, in a variable, or in the user's own file.
ALLOWED = frozenset(
    {
        *("lang", "backend", "device", "threads"),  # general ones
        *("arm", "seed", "quick", "check", "no-report", "no-find"),  # what a run trains
        *("epoch", "metric", "margin", "slower", "more-memory"),  # how results are compared
        *("cores", "gpus", "memory", "time"),  # what a job may use
    }
)
#: A line that begins a table of dualml; tables in other notation are found by parsing.
SPEAKS = re.compile(r"^\s*\[\s*tool\s*\.\s*dualml\b", re.M)


@dataclass(frozen=True)
class Project:
    """The nearest project file above the current folder, and notices about ignored ones.

    Attributes:
        path: the file to use, or None.
        notices: one line per nearer file that is ignored.
    """

    path: Path | None = None
    notices: tuple[str, ...] = ()


def find_project() -> Project:
    """Return the nearest ``pyproject.toml``, in this folder or above, that has a table
    ``[tool.dualml]`` and that nobody else can have written; its path is None if there is none.

    Raises:
        UserError: a file that nobody else can have written mentions dualml and is not TOML.
    """
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return Project()
    notices = list[str]()
    for folder in (here, *here.parents):
        path = folder / PROJECT
        try:
            with open_to_read(path) as file:
                status = os.fstat(file.fileno())
                text = file.read(MAX_TOML_CHARS + 1).decode("utf-8")
        except (OSError, UnicodeDecodeError):  # missing, a pipe, a device, no text
            continue
        if "dualml" not in text:
            continue
        if why := distrust_reason(path, status):
            if SPEAKS.search(text):
                notices.append(f"{path} is not read: {why}")
        elif has_table(path, text):
            return Project(path, tuple(notices))
    return Project(None, tuple(notices))


def has_table(path: Path, text: str) -> bool:
    """Return whether a TOML text has a table ``tool.dualml``; raise `UserError` if it is not
    TOML."""
    try:
        tool = from_toml(text).get("tool")
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    return isinstance(tool, dict) and "dualml" in tool


def distrust_reason(path: Path, status: os.stat_result) -> str:
    """Return why somebody else may have written or replaced a file; empty if nobody but the user
    and root can have. The file, its folder and that of a link's target are looked at, not the
    folders above.

    Args:
        status: the status of the opened file.
    """
    real = Path(os.path.realpath(path))
    folders = dict.fromkeys((path.parent, real.parent))
    checked = [("it", status), *((str(folder), folder.stat()) for folder in folders)]
    for what, found in checked:
        if found.st_uid not in (0, os.geteuid()):
            return f"{what} belongs to user {found.st_uid}, not to you ({os.geteuid()})"
        shared = found.st_mode & stat.S_IWGRP and not is_private(found.st_gid)
        if shared or found.st_mode & stat.S_IWOTH:
            who = "others" if found.st_mode & stat.S_IWOTH else f"group {found.st_gid}"
            return f"{who} can write to {what}; chmod go-w makes it yours"
    return ""


def is_private(group: int) -> bool:
    """Return whether a group is root's or belongs to this user alone, as on systems with one group
    per user."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        return group in (0, user.pw_gid) and grp.getgrgid(group).gr_name in ("root", user.pw_name)
    except KeyError:
        return False
