"""What students hand in: folders and zips, found and unpacked within limits."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dualml.course.workspace import NAME
from dualml.errors import UserError

#: Of one submission: bytes and files, packed or not; and how deep the files lie.
BYTES, FILES, DEEP = 50 << 20, 2000, 12
#: Folders that are never part of what a student wrote.
IDLE = {"__pycache__", ".git", ".ipynb_checkpoints", "__MACOSX", "rank_0", "kernel_meta"}


class Refused(Exception):
    """A submission that cannot be read: ``grade.refusal.KIND`` in the words, and what of it."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind, self.what = kind, what


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    Attributes:
        student: name of the folder or zip.
        path: it.
    """

    student: str
    path: Path

    def digest(self) -> str:
        """Changes when something in it does."""
        total = hashlib.sha256()
        for path in [self.path] if self.path.is_file() else sorted(self.path.rglob("*")):
            if path.is_file() and not IDLE & set(path.parts):
                total.update(str(path.relative_to(self.path.parent)).encode())
                total.update(path.read_bytes() if path.stat().st_size <= BYTES else b"large")
        return total.hexdigest()


def submissions(folder: Path) -> tuple[list[Submission], list[str]]:
    """Every folder and zip in a folder, by name; and the names of what is neither.

    Raises:
        UserError: there is no such folder, nothing in it, or two of one student.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one with a folder or zip for each student")
    there = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    found = [
        Submission(path.name if path.is_dir() else path.stem, path)
        for path in there
        if path.is_dir() or path.suffix.lower() == ".zip"
    ]
    if not found:
        raise UserError(f"{folder} has no submissions: no folders and no zips")
    names = [submission.student for submission in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{folder} has two submissions of {', '.join(twice)}; keep one")
    known = {submission.path for submission in found}
    return found, [path.name for path in there if path not in known]


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
    """Put what was handed in under ``target``, and find the files of these names.

    Raises:
        Refused: a zip that is none, leads out of its folder or is too large; no such files.
    """
    try:
        if submission.path.is_dir():
            taken(submission.path, target)
        else:
            with zipfile.ZipFile(submission.path) as packed:
                extract(packed, target)
        handed = locate(target, wanted)
    except Refused:
        raise
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError,
            NotImplementedError, RuntimeError) as error:  # fmt: skip
        raise Refused("unreadable", str(error)) from None
    if not handed.paths and not handed.twice and not any(target.rglob(NAME)):
        raise Refused("none", ", ".join(sorted(wanted)))
    return handed


def locate(target: Path, wanted: Sequence[str]) -> Handed:
    """Of each name the file that lies least deep; of several the one in a workspace."""
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


def taken(source: Path, target: Path) -> None:
    """A copy of a folder: files only, no links."""
    total = 0
    for number, path in enumerate(sorted(source.rglob("*"))):
        inside = path.relative_to(source)
        if IDLE & set(inside.parts) or path.is_symlink() or not path.is_file():
            continue
        total += path.stat().st_size
        bounded(total, number, inside.parts)
        place = target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def extract(packed: zipfile.ZipFile, target: Path) -> None:
    """Unpack, believing nothing that the zip says of itself."""
    total = 0
    for number, member in enumerate(packed.infolist()):
        name = PurePosixPath(readable(member).replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in str(name):
            raise Refused("outside", str(name))
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Refused("link", str(name))
        if IDLE & set(name.parts) or member.is_dir():
            continue
        bounded(total + member.file_size, number, name.parts)
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with packed.open(member) as source, place.open("wb") as out:
            while piece := source.read(1 << 16):
                total += len(piece)
                bounded(total, number, name.parts)
                out.write(piece)


def readable(member: zipfile.ZipInfo) -> str:
    """The name of a file in a zip. Without the flag of UTF-8 Python reads code page 437; Chinese
    Windows writes GBK."""
    if member.flag_bits & 0x800:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        pass
    try:
        return member.filename.encode("cp437").decode("gbk")
    except UnicodeError:
        return member.filename


def bounded(total: int, number: int, parts: Sequence[str]) -> None:
    if total > BYTES:
        raise Refused("bytes", f"{BYTES:,}")
    if number >= FILES:
        raise Refused("files", f"{FILES:,}")
    if len(parts) > DEEP:
        raise Refused("deep", str(len(parts)))
