"""Flush files to the disk, and report a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from dualml.common.errors import UserError

#: Error numbers of a full disk, an exceeded quota and a file size limit.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sync_to_disk(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_free_space(folder: Path, nbytes: int) -> None:
    """Raise `UserError` where the disk of an existing folder has fewer than ``nbytes`` bytes
    free."""
    if (free := shutil.disk_usage(folder).free) < nbytes:
        raise UserError(
            f"{folder}: {nbytes:,} bytes are to be written and {free:,} are free: free some space, "
            "or name another folder"
        )


def describe_write_error(error: Exception, folder: Path) -> str:
    """Return, as text, why writing to the folder failed, with a remedy if the disk is full; of a
    `UserError`, its text."""
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
