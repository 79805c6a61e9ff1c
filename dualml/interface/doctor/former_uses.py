"""Find the names of version 0.1 that a user's files still use.

Python files and the code cells of notebooks are read, never run (`dualml.interface.doctor.
former_python`); in experiment files the former keys are found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import read_toml
from dualml.experiment.keys import WrittenKeys
from dualml.interface.doctor.finding import DoctorFinding, make_finding
from dualml.interface.doctor.former_python import former_python_names

SUFFIXES = (".py", ".ipynb", ".toml")
#: Folders of other people's code.
INSTALLED = frozenset({"site-packages", "node_modules", "__pycache__"})
#: Size of the largest file that is read, in bytes, and number of files.
MAX_SIZE, MAX_FILES = 4_000_000, 20_000


def examine_files(paths: Sequence[Path]) -> Iterator[DoctorFinding]:
    """Yield a finding for each former name and each unreadable file, and one for all files.

    Raises:
        UserError: a path does not exist, or there are more files than are read.
    """
    count = used = 0
    for path in list_files(paths):
        count += 1
        try:
            lines = list(former_names_of_file(path))
        except (OSError, UserError, SyntaxError, ValueError) as error:
            reason = str(error).splitlines()[0].removeprefix(f"{path}: ")
            yield make_finding(str(path), "warn", "former_unread", error=reason)
            continue
        used += len(lines)
        yield from (make_finding(place, "warn", text=message) for place, message in lines)
    if used:
        yield make_finding("files", "warn", "former_used", "former_used", count=count, used=used)
    else:
        yield make_finding("files", "ok", "former_none", count=count)


def list_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that can have former names, of folders all below them except hidden folders,
    virtual environments and installed packages. Raises as `examine_files` does."""
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
    """Yield the files of a folder in the order of their names."""
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


def former_names_of_file(path: Path) -> Iterator[tuple[str, str]]:
    """Yield place and message of each former name in a file.

    Raises:
        OSError, UserError, SyntaxError, ValueError: it cannot be read.
    """
    if (size := path.stat().st_size) > MAX_SIZE:
        raise UserError(f"{size:,} bytes, and at most {MAX_SIZE:,} are read")
    if path.suffix == ".toml":
        keys = WrittenKeys()
        keys.store(read_toml(path), str(path))
        for notice in keys.notices:
            place, _, message = notice.removesuffix("; the former names still work").partition(": ")
            yield place, message
    elif path.suffix == ".ipynb":
        for number, source in code_cells(path):
            for line, message in former_python_names(source):
                yield f"{path}, cell {number}:{line}", message
    else:
        for line, message in former_python_names(path.read_text("utf-8")):
            yield f"{path}:{line}", message


def code_cells(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and source of each code cell of a notebook, commands of IPython left out.

    Raises:
        ValueError: it is no notebook.
    """
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources = [
            (number, "".join(cell["source"]))
            for number, cell in enumerate(cells, 1)
            if cell["cell_type"] == "code"
        ]
    except (KeyError, TypeError, RecursionError):
        raise ValueError("no notebook of format 4") from None
    for number, source in sources:
        lines = ["" if line.lstrip()[:1] in "%!" else line for line in source.split("\n")]
        yield number, "\n".join(lines)
