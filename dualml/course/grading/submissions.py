"""What students hand in: a folder or a zip for each, found, unpacked and looked through."""

from __future__ import annotations

import hashlib
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.course.faults import kind_of_fault
from dualml.course.grading.names import folder_names, readable_names
from dualml.course.grading.unpacking import Refused as Refused
from dualml.course.grading.unpacking import content_of, copy_programs, extract, is_wanted, walk
from dualml.course.grading.unpacking import readable as readable
from dualml.course.workspace import NAME
from dualml.errors import UserError, plain


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    Attributes:
        student: name of the folder or zip, as it is shown.
        path: it.
        folder: name of the folder of results; of those of a class no two are the same.
    """

    student: str
    path: Path
    folder: str = ""

    @property
    def results(self) -> str:
        return self.folder or folder_names([self.student])[0]

    def digest(self) -> str:
        """Return a text that changes when something in it does.

        Raises:
            OSError: it cannot be read.
        """
        total = hashlib.sha256(os.fsencode(self.path.name))
        try:
            if self.path.is_dir() and not self.path.is_symlink():
                for inside, size in walk(self.path):
                    total.update(os.fsencode(f"{inside}\0{size}\0"))
                    if is_wanted(inside.name):
                        total.update(content_of(self.path / inside))
            else:
                total.update(content_of(self.path))
        except Refused as error:
            total.update(str(error).encode())
        return total.hexdigest()


def submissions(folder: Path, out: Path | None = None) -> tuple[list[Submission], list[str]]:
    """Return every folder and zip in a folder, by name; and the names of what is neither.

    Args:
        out: where results go, which is no submission.

    Raises:
        UserError: there is no such folder, nothing in it, or two of one student.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one with a folder or zip for each student")
    whole = out.resolve() if out is not None else None
    aside = whole.name if whole is not None and whole.parent == folder.resolve() else ""
    found: list[tuple[str, Path]] = []
    others = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == aside:
            continue
        if path.is_dir():
            found.append((path.name, path))
        elif path.suffix.lower() == ".zip":
            found.append((path.stem, path))
        else:
            others.append(path.name)
    if not found:
        raise UserError(f"{folder} has no submissions: no folders and no zips")
    raw = [name for name, _ in found]
    if twice := sorted({plain(name) for name in raw if raw.count(name) > 1}):
        raise UserError(f"{folder} has two submissions of {', '.join(twice)}; keep one")
    names = readable_names([os.fsencode(name) for name in raw])
    folders = folder_names(names)
    return [
        Submission(name, path, own)
        for name, own, (_, path) in zip(names, folders, found, strict=True)
    ], readable_names([os.fsencode(name) for name in others])


@dataclass(frozen=True)
class Handed:
    """What was found of the exercises' files.

    Attributes:
        paths: name → where it is.
        twice: name → where it is, of those of which nothing says which one counts.
    """

    paths: Mapping[str, Path]
    twice: Mapping[str, str]


def unpack(submission: Submission, target: Path, wanted: Sequence[str]) -> Handed:
    """Put the programs that were handed in under ``target``, and find the files of these names.

    Raises:
        Refused: a zip that is none, leads out of its folder or is too large; no such files.
        OSError: the machine is at fault (`kind_of_fault`).
    """
    try:
        if submission.path.is_symlink():
            raise Refused("special", plain(submission.path.name))
        if submission.path.is_dir():
            copy_programs(submission.path, target)
        else:
            extract(content_of(submission.path), target)
        handed = locate(target, wanted)
    except Refused:
        raise
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError,
            NotImplementedError, RuntimeError, OverflowError) as error:  # fmt: skip
        if kind_of_fault(error):
            raise
        what = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise Refused("unreadable", what) from error
    if not handed.paths and not handed.twice and not any(target.rglob(NAME)):
        raise Refused("none", ", ".join(sorted(wanted)))
    return handed


def locate(target: Path, wanted: Sequence[str]) -> Handed:
    """Return of each name the file that lies least deep; of several the one in a workspace."""
    paths: dict[str, Path] = {}
    twice: dict[str, str] = {}
    for name in wanted:
        there = sorted(path for path in target.rglob(name) if path.is_file())
        least = min((len(path.parts) for path in there), default=0)
        first = [path for path in there if len(path.parts) == least]
        first = [path for path in first if (path.parent / NAME).is_file()] or first
        if len({path.read_bytes() for path in first}) > 1:
            twice[name] = ", ".join(str(path.relative_to(target)) for path in first)
        elif first:
            paths[name] = first[0]
    return Handed(paths, twice)
