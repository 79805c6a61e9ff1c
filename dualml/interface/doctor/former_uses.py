"""Find the names of version 0.1 that a user's files still use.

Python files and the code cells of notebooks are read, never run (`dualml.interface.doctor.
former_python`); in experiment files the former keys are found.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dualml.common.errors import UserError
from dualml.common.files import read_toml
from dualml.experiment.keys import WrittenKeys
from dualml.interface.doctor.finding import DoctorFinding, Mark, make_finding
from dualml.interface.doctor.former_python import FormerNameScan

SUFFIXES = (".py", ".ipynb", ".toml")
#: Folders of other people's code.
INSTALLED = frozenset({"site-packages", "node_modules", "__pycache__"})
#: Size of the largest file that is read, in bytes, and number of files.
MAX_SIZE, MAX_FILES = 4_000_000, 20_000
#: Commands of IPython that have Python in the rest of their cell.
PYTHON_MAGICS = frozenset({"%%time", "%%timeit", "%%capture", "%%prun"})
#: Lines of IPython that are no Python: commands, results of commands, questions.
IPYTHON_LINE = re.compile(r"\s*([%!?]|\w+\s*=\s*[%!])|.*\?\s*$")
UNREADABLE = (OSError, UserError, SyntaxError, ValueError)


class FormerUse(NamedTuple):
    """A former name, or a part of a file that cannot be read.

    Attributes:
        place: file, with a line or a cell.
        message: what the name is now, or why the part cannot be read.
        is_read: True for a former name, False for an unreadable part.
    """

    place: str
    message: str
    is_read: bool = True


def examine_files(paths: Sequence[Path]) -> Iterator[DoctorFinding]:
    """Yield a finding for each former name in the files and each part that cannot be read, and at
    last one with the numbers of files, names and unreadable parts. Folders are searched at any
    depth.

    Raises:
        UserError: a path does not exist, or there are more files than are read.
    """
    count = used = unread = 0
    for path in list_files(paths):
        count += 1
        for use in find_former_uses(path):
            if use.is_read:
                used += 1
                yield make_finding(use.place, "warn", text=use.message)
            else:
                unread += 1
                yield make_finding(use.place, "warn", "former_unread", error=use.message)
    mark: Mark = "warn" if used or unread else "ok"
    remedy = "former_names" if used else ""
    yield make_finding("files", mark, "former_names", remedy, count=count, used=used, unread=unread)


def list_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files among ``paths``, and of folders all files below them that can have former
    names, except in hidden folders, virtual environments and installed packages.

    Raises:
        UserError: a path does not exist, or there are more than `MAX_FILES` files.
    """
    count = 0
    for start in paths:
        if not start.exists():
            raise UserError(f"{start} does not exist; name files or folders")
        for path in files_below(start) if start.is_dir() else [start]:
            count += 1
            if count > MAX_FILES:
                raise UserError(f"more than {MAX_FILES:,} files; name smaller folders than {start}")
            yield path


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the Python files, notebooks and TOML files of a folder, then those of the folders in
    it, sorted by name; hidden folders, virtual environments and installed packages are skipped."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in INSTALLED
            and not Path(place, name, "pyvenv.cfg").exists()
        )
        paths = (Path(place, name) for name in sorted(names) if name.endswith(SUFFIXES))
        yield from (path for path in paths if path.is_file())


def find_former_uses(path: Path) -> Iterator[FormerUse]:
    """Yield the former names in a file, and what of it cannot be read, with the reason; nothing is
    raised for an unreadable file."""
    try:
        if not path.is_file():
            raise UserError("not a regular file")
        if (size := path.stat().st_size) > MAX_SIZE:
            raise UserError(f"{size:,} bytes, and at most {MAX_SIZE:,} are read")
        if path.suffix == ".toml":
            yield from find_former_keys(path)
        elif path.suffix == ".ipynb":
            yield from find_in_notebook(path)
        else:
            for line, message in FormerNameScan().read(path.read_bytes()):
                yield FormerUse(f"{path}:{line}", message)
    except UNREADABLE as error:
        yield FormerUse(str(path), first_line(error).removeprefix(f"{path}: "), is_read=False)


def find_former_keys(path: Path) -> Iterator[FormerUse]:
    """Yield the former keys of an experiment file; `UserError` if it is not TOML."""
    keys = WrittenKeys()
    keys.store(read_toml(path), str(path))
    for notice in keys.notices:
        place, _, message = notice.removesuffix("; the former names still work").partition(": ")
        yield FormerUse(place, message)


def find_in_notebook(path: Path) -> Iterator[FormerUse]:
    """Yield the former names in the code cells of a notebook; names that a cell defines hold in
    later cells as well. A cell that is no Python is yielded as unreadable.

    Raises:
        ValueError: it is no notebook.
    """
    scan = FormerNameScan()
    for number, source in code_cells(path):
        cell = f"{path}, cell {number}"
        try:
            for line, message in read_cell(scan, source):
                yield FormerUse(f"{cell}:{line}", message)
        except (SyntaxError, ValueError) as error:
            yield FormerUse(cell, first_line(error), is_read=False)


def read_cell(scan: FormerNameScan, source: str) -> list[tuple[int, str]]:
    """Return line and message of each former name in a cell, without the lines of IPython if it is
    no Python as it is; none in a cell of another language.

    Raises:
        SyntaxError, ValueError: the rest is no Python, or nested too deeply.
    """
    lines = source.split("\n")
    magic = lines[0].split()[:1]
    if magic and magic[0].startswith("%%"):
        if magic[0] not in PYTHON_MAGICS:
            return []
        lines[0] = ""
    try:
        return scan.read("\n".join(lines))
    except SyntaxError:
        return scan.read("\n".join("" if IPYTHON_LINE.match(line) else line for line in lines))


def code_cells(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and source of each code cell of a notebook.

    Raises:
        ValueError: it is no notebook.
    """
    try:
        cells = json.loads(path.read_text("utf-8-sig"))["cells"]
        sources = [
            (number, "".join(cell["source"]))
            for number, cell in enumerate(cells, 1)
            if cell["cell_type"] == "code"
        ]
    except (KeyError, TypeError, RecursionError):
        raise ValueError("no notebook of format 4") from None
    yield from sources


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its kind if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)
