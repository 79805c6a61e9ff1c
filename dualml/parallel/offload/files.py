"""An unnamed temporary file for arrays, which disappears however its process ends."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from dualml.backend import Array
from dualml.common.errors import TrialError

#: Errors of file systems that cannot reserve space; a full disk is noticed on writing.
CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Scratch:
    """A file of fixed size in a folder.

    It is read and written by system calls and not mapped into memory (`numpy.memmap`): a failing
    call is an error with a reason, whereas a page that cannot be written kills the process
    (SIGBUS), and host memory holds nothing but the caller's buffers, so that a budget can be kept.

    Raises:
        TrialError: no file can be made there, or none of this size.
    """

    def __init__(self, folder: Path, nbytes: int) -> None:
        self.folder, self.nbytes = folder, nbytes
        try:
            self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see close
        except OSError as error:
            raise self._error(error) from error
        try:
            self._reserve()
        except OSError as error:
            self.close()
            raise self._error(error) from error

    def _reserve(self) -> None:
        """Reserve the disk space of the file; where the file system cannot, only set the file's
        size."""
        try:
            os.posix_fallocate(self.file.fileno(), 0, self.nbytes)
        except OSError as error:
            if error.errno not in CANNOT_RESERVE:
                raise
            os.ftruncate(self.file.fileno(), self.nbytes)

    def read(self, array: Array, begin: int) -> None:
        """Fill the contiguous ``array`` in place with the file's bytes from byte offset ``begin``
        on; raise `TrialError` if the system cannot or the file ends before."""
        self._move(os.preadv, array, begin)

    def write(self, array: Array, begin: int) -> None:
        """Write the contiguous ``array`` into the file at byte offset ``begin``; raise `TrialError`
        if the system cannot."""
        self._move(os.pwritev, array, begin)

    def _move(
        self, move: Callable[[int, list[memoryview], int], int], array: Array, begin: int
    ) -> None:
        """Call ``move``, ``os.preadv`` or ``os.pwritev``, until all bytes of ``array`` are read
        from or written to the file at byte offset ``begin``; raise `TrialError` if it fails or
        moves nothing."""
        rest = array.data.cast("B")
        try:
            while rest:
                count = move(self.file.fileno(), [rest], begin)
                if not count:
                    raise OSError(errno.EIO, f"the file ends at byte {begin}")
                rest, begin = rest[count:], begin + count
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file and free its disk space; may be called again."""
        self.file.close()

    def _error(self, error: OSError) -> TrialError:
        """Return a `TrialError` that says why the file failed, and the remedy: a full disk, the
        limit on file sizes, or the system's message."""
        remedy = "choose another folder with --out, or offload to host"
        if error.errno == errno.EFBIG:
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            why = f"a file may have {limit:,} bytes here (ulimit -f)"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            why, remedy = f"{error.strerror}, {self._free()} free", f"make room, {remedy}"
        else:
            why = error.strerror or str(error)
        return TrialError(
            f"offload needs a file of {self.nbytes:,} bytes in {self.folder}: {why}; {remedy}"
        )

    def _free(self) -> str:
        """Return the free disk space of the folder as text, in bytes, or ``unknown``."""
        try:
            return f"{shutil.disk_usage(self.folder).free:,} bytes"
        except OSError:
            return "unknown"
