"""The disk: what is on it for good, and what does not fit on it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from dualml.errors import UserError

#: A full disk, a quota, a limit for one file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(folder: Path, nbytes: int) -> None:
    """Raises `UserError` where a disk has fewer bytes left, before anything is written."""
    if (free := shutil.disk_usage(folder).free) < nbytes:
        raise UserError(
            f"{folder}: {nbytes:,} bytes are to be written and {free:,} are free: free some space, "
            "or name another folder"
        )


def reason(error: Exception, folder: Path) -> str:
    """What went wrong when the folder was written, with the remedy where it is full."""
    if isinstance(error, UserError):
        return str(error)
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    text = f"{error.filename or folder}: {error.strerror or error}"
    if error.errno not in FULL:
        return text
    free = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
    limit = ", or raise the limit (ulimit -f)" if error.errno == errno.EFBIG else ""
    return f"{text}; {free:,} bytes are free: free some space{limit}, or name another folder"
