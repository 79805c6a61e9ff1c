"""Submissions of students, a folder or a zip each: found, unpacked and searched."""

from __future__ import annotations

import hashlib
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError, escape_unprintable
from dualml.course.faults import kind_of_fault
from dualml.course.grading.names import folder_names, readable_names
from dualml.course.grading.unpacking import SubmissionRefused as SubmissionRefused
from dualml.course.grading.unpacking import content_of, copy_programs, extract, is_course_file, walk
from dualml.course.grading.unpacking import decode_member_name as decode_member_name
from dualml.course.workspace import NAME


@dataclass(frozen=True)
class Submission:
    """Submission of one student.

    Attributes:
        student: displayed name of the folder or zip.
        path: path of the folder or zip.
        folder: name of the folder of results, unique in the class.
    """

    student: str
    path: Path
    folder: str = ""

    @property
    def results_folder(self) -> str:
        """Name of the folder of results: ``folder``, or one made from the student's name if that is
        empty."""
        return self.folder or folder_names([self.student])[0]

    def digest(self) -> str:
        """Return a digest that changes with the submission's name and its content: a zip's bytes;
        in a folder the programs' bytes and the other files' names and sizes, without folders in
        `IDLE`.

        Raises:
            OSError: the submission cannot be read.
        """
        total = hashlib.sha256(os.fsencode(self.path.name))
        try:
            if self.path.is_dir() and not self.path.is_symlink():
                for inside, size in walk(self.path):
                    total.update(os.fsencode(f"{inside}\0{size}\0"))
                    if is_course_file(inside.name):
                        total.update(content_of(self.path / inside))
            else:
                total.update(content_of(self.path))
        except SubmissionRefused as error:
            total.update(str(error).encode())
        return total.hexdigest()


def find_submissions(folder: Path, out: Path | None = None) -> tuple[list[Submission], list[str]]:
    """Return every folder and zip in a folder, by name, and the names of all other files; names
    that begin with a dot are passed over.

    Args:
        out: folder of results, which is no submission.

    Raises:
        UserError: there is no such folder, nothing in it, or two submissions of one student.
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
    if twice := sorted({escape_unprintable(name) for name in raw if raw.count(name) > 1}):
        raise UserError(f"{folder} has two submissions of {', '.join(twice)}; keep one")
    names = readable_names([os.fsencode(name) for name in raw])
    folders = folder_names(names)
    return [
        Submission(name, path, own)
        for name, own, (_, path) in zip(names, folders, found, strict=True)
    ], readable_names([os.fsencode(name) for name in others])


@dataclass(frozen=True)
class FoundFiles:
    """The exercises' files found in a submission.

    Attributes:
        paths: name → path of the file.
        twice: name → paths, for ambiguous files of which none takes precedence.
    """

    paths: Mapping[str, Path]
    twice: Mapping[str, str]


def unpack(submission: Submission, target: Path, wanted: Sequence[str]) -> FoundFiles:
    """Unpack the programs of a submission into ``target``, and find the files with these names.

    Raises:
        SubmissionRefused: the submission is a link, an invalid zip, leads out of its folder, is too
            large, or has neither such a file nor the one that marks a workspace.
        OSError: the machine is at fault (`kind_of_fault`).
    """
    try:
        if submission.path.is_symlink():
            raise SubmissionRefused("special", escape_unprintable(submission.path.name))
        if submission.path.is_dir():
            copy_programs(submission.path, target)
        else:
            extract(content_of(submission.path), target)
        handed = locate(target, wanted)
    except SubmissionRefused:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        OverflowError,
    ) as error:
        if kind_of_fault(error):
            raise
        what = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise SubmissionRefused("unreadable", what) from error
    if not handed.paths and not handed.twice and not any(target.rglob(NAME)):
        raise SubmissionRefused("none", ", ".join(sorted(wanted)))
    return handed


def locate(target: Path, wanted: Sequence[str]) -> FoundFiles:
    """Find the least nested file of each name in ``target``; of several, the one in a workspace.
    Names whose candidates differ are reported as found twice."""
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
    return FoundFiles(paths, twice)
