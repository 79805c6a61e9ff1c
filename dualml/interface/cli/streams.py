"""Keep standard output and error from delaying the end of a command.

A terminal can stall (Ctrl-S, a lost connection) and a pipe can have a reader that no longer reads.
Writing to it then blocks, and the writing thread may hold a lock that the main thread needs to end
the command.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import time
from collections.abc import Callable
from typing import Any, TextIO

#: Seconds for which a command that is to end waits for a reader that takes nothing.
PATIENCE_S = 1.0
POLL_S = 0.02


class InterruptibleOutput(io.RawIOBase):
    """Unbuffered output to a terminal or pipe that loses its text rather than delay an interrupt.

    A stalled reader is waited for without limit until ``is_interrupted()`` holds, then for
    `PATIENCE_S`. A terminal that has been closed discards what is written to it.

    Args:
        number: file descriptor of the terminal or pipe.
        is_interrupted: whether the command has been told to end; called by every thread that
            writes.
    """

    def __init__(self, number: int, is_interrupted: Callable[[], bool]) -> None:
        self.number, self.is_interrupted = number, is_interrupted
        self.is_terminal = os.isatty(number)
        #: Where to write; None after giving up.
        self.target: int | None = open_nonblocking(number)

    def writable(self) -> bool:
        """Return True: the stream accepts text."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor that this object stands for."""
        return self.number

    def isatty(self) -> bool:
        """Return whether the descriptor was a terminal when this object was made."""
        return self.is_terminal

    def write(self, data: Any) -> int:
        """Write all of ``data``, waiting for the reader; return its length.

        After an interruption a reader that takes nothing for `PATIENCE_S` loses the rest and all
        later data, as does a closed terminal.

        Raises:
            BrokenPipeError: the reader of the pipe has gone.
        """
        rest, waited = memoryview(data), 0.0
        while rest and self.target is not None:
            try:
                rest, waited = rest[os.write(self.target, rest) :], 0.0
            except BlockingIOError:
                if waited >= PATIENCE_S:
                    self.target = None
                    break
                time.sleep(POLL_S)
                waited += POLL_S if self.is_interrupted() else 0.0
            except OSError as error:
                if not self.is_terminal or error.errno != errno.EIO:
                    raise
                self.target = None  # the terminal was closed
        return len(data)


def open_nonblocking(number: int) -> int:
    """Open the file of a descriptor a second time for writing without blocking, and return the new
    descriptor.

    The descriptor itself stays as it is, because other processes share its mode; it is what is
    returned where its file cannot be opened again.
    """
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
    with contextlib.suppress(OSError):
        return os.open(f"/dev/fd/{number}", flags)
    with contextlib.suppress(OSError):  # after `su` the terminal belongs to another user
        os.tcgetpgrp(number)  # fails unless this is the controlling terminal
        return os.open("/dev/tty", flags)
    return number


def make_interruptible(stream: TextIO, is_interrupted: Callable[[], bool]) -> TextIO:
    """Return a text stream like ``stream`` on an `InterruptibleOutput`, or ``stream`` itself if it
    leads to neither a terminal nor a pipe."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        number = stream.fileno()
        if not os.isatty(number) and not stat.S_ISFIFO(os.fstat(number).st_mode):
            return stream
    except OSError:
        return stream
    stream.flush()
    # Without a buffer in between: its lock cannot be interrupted.
    return io.TextIOWrapper(
        InterruptibleOutput(number, is_interrupted),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
