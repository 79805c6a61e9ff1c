"""Write outputs that a user names on the command line: a file, device, pipe or standard output."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from dualml.common.errors import NotAFile, UserError
from dualml.common.files import file_type, is_special, write_bytes

#: Time limit for a pipe, and the interval at which it is polled for a reader, in seconds.
WRITE_S, POLL_S = 10.0, 0.05


def write_output(path: Path, content: bytes, seconds: float = WRITE_S) -> None:
    """Write content to the path that the user named.

    ``-`` is standard output. A device, a pipe or a descriptor of this process (``/dev/stdout``) is
    written to in place; any other file is replaced, as by `write_bytes`.

    Args:
        seconds: longest wait for a pipe's reader, at the start and after each part it took.

    Raises:
        UserError: a pipe has no reader in that time, or the path is a socket.
        OSError: the path cannot be written.
    """
    if (stream := _stream_of(path)) is not None:
        stream.flush()  # keep the order of what was printed before
        stream.buffer.write(content)
        stream.buffer.flush()
    elif is_special(path):
        _write_into(path, content, seconds)
    else:
        write_bytes(path, content)


def _stream_of(path: Path) -> Any:
    """Return this process's standard output (for ``-`` or ``/dev/stdout``) or standard error, if
    the path leads to it, or None.

    Opening the file a second time would write at another position.
    """
    if str(path) == "-":
        return sys.stdout
    for stream in (sys.stdout, sys.stderr) if is_special(path) else ():
        with contextlib.suppress(OSError, ValueError):  # closed, or not a real stream
            if os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
    return None


def _write_into(path: Path, content: bytes, seconds: float) -> None:
    """Write to a device, pipe or descriptor in place; ``seconds`` limits each wait for a reader.

    Raises:
        UserError: a pipe has no reader in that time, or ``path`` is a socket (`NotAFile`).
        OSError: it cannot be written.
    """
    deadline = time.monotonic() + seconds
    late = f"{path}: nobody reads this pipe: start its reader, or name a file"
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    while True:
        try:
            descriptor = os.open(path, flags)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if not path.is_fifo():
                raise NotAFile(f"{path} is {file_type(path)}, not a file: name a file") from None
            if time.monotonic() > deadline:
                raise UserError(late) from None
            time.sleep(POLL_S)
    left = memoryview(content)
    try:
        while left:
            if not select.select([], [descriptor], [], max(0.0, deadline - time.monotonic()))[1]:
                raise UserError(late)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(descriptor, left) :]
                deadline = time.monotonic() + seconds
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
