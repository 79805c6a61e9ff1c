"""The project's file of defaults: the nearest ``pyproject.toml`` with a table ``[tool.dualml]``.

It comes with a folder that somebody else may have made. It is heeded where nobody but the user and
root can have written it, and sets only what is on the list `ALLOWED`.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError
from dualml.files import open_to_read
from dualml.parse import LONGEST_TOML, from_toml

PROJECT = "pyproject.toml"
#: Options that a project may set, of any command that has them. All that says where files go or
#: come from, which addresses and machines are used, what is started, removed or sent away, is for
#: the user to decide: on the command line, in a variable, or in the user's own file.
ALLOWED = frozenset(
    {
        *("lang", "backend", "device", "threads"),  # general ones
        *("arm", "seed", "quick", "check", "no-report", "no-find"),  # what a run trains
        *("epoch", "metric", "margin", "slower", "more-memory"),  # how something is looked at
        *("cores", "gpus", "memory", "time"),  # what a job may use
    }
)
#: A table of dualml's begins; one that is written otherwise is found when the file is read.
SPEAKS = re.compile(r"^\s*\[\s*tool\s*\.\s*dualml\b", re.M)


@dataclass(frozen=True)
class Project:
    """The project's file that is nearest above the current folder, and what was said of others.

    Attributes:
        path: the file that is heeded, or None.
        notices: one line for each nearer file that is not.
    """

    path: Path | None = None
    notices: tuple[str, ...] = ()


def find_project() -> Project:
    """Look for the project's file.

    Raises:
        UserError: the file is no TOML.
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
                text = file.read(LONGEST_TOML + 1).decode("utf-8")
        except (OSError, UnicodeDecodeError):  # missing, a pipe, a device, no text
            continue
        if "dualml" not in text:
            continue
        if why := distrust(path, status):
            if SPEAKS.search(text):
                notices.append(f"{path} is not read: {why}")
        elif has_table(path, text):
            return Project(path, tuple(notices))
    return Project(None, tuple(notices))


def has_table(path: Path, text: str) -> bool:
    """Whether the text of a file has a key ``tool.dualml``. Raises `UserError` for no TOML."""
    try:
        tool = from_toml(text).get("tool")
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    return isinstance(tool, dict) and "dualml" in tool


def distrust(path: Path, status: os.stat_result) -> str:
    """Why somebody else may have written a file; empty where nobody can have.

    Args:
        status: of the file that was opened.
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
    """Whether a group is that of this user alone: systems that give every user one let it write."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid())
        return group in (0, user.pw_gid) and grp.getgrgid(group).gr_name in ("root", user.pw_name)
    except KeyError:
        return False
