"""Displayed names of students, and names of their result folders."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from dualml.common.errors import escape_unprintable
from dualml.course.encoding import decode_names

#: Maximum bytes of a folder's name, and of the part kept of a name that is not plain.
MAX_NAME_BYTES, MAX_KEPT_BYTES = 150, 80
#: Characters that some file system forbids in names.
RESERVED = re.compile(r'[/\\:*?"<>|]')
#: Ending of the names from `with_hash`, and names of devices on Windows.
HASHED = re.compile(r" [0-9a-f]{12}$")
DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def readable_names(raw: Sequence[bytes]) -> list[str]:
    """Return the displayed names for these file names: all different, without control characters.
    ``unzip`` leaves names as Chinese Windows wrote them, in GBK or Big5."""
    shown = [escape_unprintable(name) for name in decode_names(raw)]
    times = Counter(shown)
    taken = {name for name in shown if times[name] == 1}
    names = []
    for name, own in zip(shown, raw, strict=True):
        if times[name] > 1:
            name = f"{name} ({digest(own)[:6]})"
            while name in taken:
                name += "*"
            taken.add(name)
        names.append(name)
    return names


def folder_names(students: Sequence[str]) -> list[str]:
    """Return a folder name for each student: the student's name, or `with_hash` if it is not
    `is_plain` or differs from another one only in case or composition, so that no two are equal on
    any file system."""
    same = Counter(filesystem_key(student) for student in students)
    return [
        student if same[filesystem_key(student)] == 1 and is_plain(student) else with_hash(student)
        for student in students
    ]


def filesystem_key(name: str) -> str:
    """Return a key that is equal for names which a file system may confuse."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def is_plain(name: str) -> bool:
    """Return whether a name can be a folder's on every file system and in every command, with at
    most `MAX_NAME_BYTES`, and does not end like the names of `with_hash`."""
    return (
        0 < len(name.encode()) <= MAX_NAME_BYTES
        and name.isprintable()
        and not RESERVED.search(name)
        and name[0] not in "-.~ "
        and name[-1] not in ". "
        and not DEVICES.fullmatch(name)
        and not HASHED.search(name)
    )


def with_hash(name: str) -> str:
    """Return a name with ``_`` for all but letters and digits, cut to `MAX_KEPT_BYTES`, and 12
    hexadecimal digits of the full name's hash."""
    kept = "".join(letter if letter.isalnum() else "_" for letter in name)
    cut = kept.encode(errors="ignore")[:MAX_KEPT_BYTES].decode(errors="ignore")
    return f"{cut} {digest(name.encode(errors='surrogatepass'))[:12]}"


def digest(text: bytes) -> str:
    """Return the SHA-256 of a name as hexadecimal text."""
    return hashlib.sha256(text).hexdigest()
