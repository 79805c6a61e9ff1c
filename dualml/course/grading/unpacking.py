"""Reading of students' folders and zips, within limits and without trusting their content."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import open_to_read
from dualml.course.encoding import decode_names
from dualml.course.workspace import NAME

#: Limits of one submission: bytes and files, packed or not, and depth of folders.
BYTES, FILES, DEEP = 50 << 20, 2000, 12
#: Largest number of entries of a folder or a zip, of any kind.
ENTRIES = 10 * FILES
#: Folders that never belong to a student's work.
IDLE = {
    "__pycache__",
    ".git",
    ".ipynb_checkpoints",
    "__MACOSX",
    "rank_0",
    "kernel_meta",
    ".venv",
    "venv",
    "node_modules",
    ".idea",
    ".vscode",
}
#: Allowed compression methods of a zip; the decoders of others may use any amount of memory.
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)


class SubmissionRefused(Exception):
    """Error: a submission cannot be read; its message is ``grade.refusal.KIND`` with the detail
    ``what``."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind, self.what = kind, what


def is_course_file(name: str) -> bool:
    """Return whether judging needs a file: a program, or the file that marks a workspace."""
    return name.endswith(".py") or name == NAME


def content_of(path: Path) -> bytes:
    """Read a regular file.

    Raises:
        SubmissionRefused: the path is no regular file, or too large.
        OSError: the file cannot be read.
    """
    try:
        with open_to_read(path, follow_links=False) as stream:
            content = stream.read(BYTES + 1)
    except UserError:
        raise SubmissionRefused("special", escape_unprintable(path.name)) from None
    check_limits(len(content), 0, ())
    return content


def walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the regular files below a folder and their sizes, in a stable order; folders in `IDLE`
    are left out. No link is followed, and only folders are opened.

    Raises:
        SubmissionRefused: the files are too many, too large or too deep.
    """
    left, seen, files, total = [Path()], 0, 0, 0
    while left:
        here = left.pop()
        with os.scandir(folder / here) as listed:
            entries = []
            for entry in listed:
                seen += 1
                if seen > ENTRIES:
                    raise SubmissionRefused("files", f"{ENTRIES:,}")
                entries.append(entry)
        for entry in sorted(entries, key=lambda entry: entry.name, reverse=True):
            inside = here / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name not in IDLE:
                check_limits(0, 0, inside.parts)
                left.append(inside)
            elif entry.is_file(follow_symlinks=False):
                size = entry.stat(follow_symlinks=False).st_size
                total += size
                check_limits(total, files, inside.parts)
                files += 1
                yield inside, size


def copy_programs(source: Path, target: Path) -> None:
    """Copy the programs of a folder and the file that marks a workspace into ``target``: regular
    files only, no links. Raise `SubmissionRefused` as `walk`."""
    for inside, _ in walk(source):
        if is_course_file(inside.name):
            place = target / inside
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content_of(source / inside))


def extract(content: bytes, target: Path) -> None:
    """Unpack the programs of a zip and the file that marks a workspace into ``target``, without
    trusting its metadata.

    Raises:
        SubmissionRefused: the zip leads out of its folder, has links, exceeds the limits, or a file
            to unpack is compressed by a method not in `PACKED`.
        zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError: it is damaged
            or encrypted; `NotImplementedError` is one of the last.
    """
    # A member needs a directory entry, which begins with these bytes.
    if content.count(b"PK\x01\x02") > ENTRIES:
        raise SubmissionRefused("files", f"{ENTRIES:,}")
    total = files = 0
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = packed.infolist()
        for member, shown in zip(members, decode_member_names(members), strict=True):
            name = PurePosixPath(shown.replace("\\", "/"))
            if name.is_absolute() or ".." in name.parts or ":" in str(name):
                raise SubmissionRefused("outside", str(name))
            if stat.S_ISLNK(member.external_attr >> 16):
                raise SubmissionRefused("link", str(name))
            if IDLE & set(name.parts) or shown.endswith(("/", "\\")):
                continue
            check_limits(total + member.file_size, files, name.parts)
            files += 1
            if not is_course_file(name.name):
                total += member.file_size
                continue
            if member.compress_type not in PACKED:
                raise SubmissionRefused(
                    "unreadable", f"{name}: compression method {member.compress_type}"
                )
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(member) as source, place.open("wb") as out:
                while piece := source.read(1 << 16):
                    total += len(piece)
                    check_limits(total, files - 1, name.parts)
                    out.write(piece)


def decode_member_name(member: zipfile.ZipInfo) -> str:
    """Return the name of a file in a zip."""
    return decode_member_names([member])[0]


def decode_member_names(members: Sequence[zipfile.ZipInfo]) -> list[str]:
    """Return the names of files in one zip. Python reads names without the UTF-8 flag in code page
    437; Chinese Windows writes GBK or Big5."""
    flagged = [bool(member.flag_bits & 0x800) for member in members]
    raw = [
        m.filename.encode("cp437", "replace")
        for m, own in zip(members, flagged, strict=True)
        if not own
    ]
    others = iter(decode_names(raw, lambda name: name.decode("cp437")))
    return [m.filename if own else next(others) for m, own in zip(members, flagged, strict=True)]


def check_limits(total: int, number: int, parts: Sequence[str]) -> None:
    """Raise `SubmissionRefused` if a submission exceeds the limits: ``total`` bytes, ``number`` of
    files before this one, and depth of the path ``parts``."""
    if total > BYTES:
        raise SubmissionRefused("bytes", f"{BYTES:,}")
    if number >= FILES:
        raise SubmissionRefused("files", f"{FILES:,}")
    if len(parts) > DEEP:
        raise SubmissionRefused("deep", str(len(parts)))
