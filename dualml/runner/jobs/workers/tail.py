"""The workers' output, copied line by line into the log of their job."""

from __future__ import annotations

import sys
from pathlib import Path

from dualml.common.files import open_to_read

#: Bytes copied at a time, and maximum bytes copied per worker; the worker's own file is complete.
COPY_CHUNK_BYTES, MAX_COPIED_BYTES = 2**16, 2**24


class LogTail:
    """Follows a worker's log, and prints its complete lines prefixed with the worker's rank.

    Args:
        path: of its log.
        rank: of the worker.
        size: number of workers of the job; a single one gets no prefix.
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self.path, self.prefix = path, f"[{rank}] ".encode() if size > 1 else b""
        self.offset, self.partial_line = 0, b""

    def copy(self, last: bool = False) -> None:
        """Print new complete lines, from at most `COPY_CHUNK_BYTES` bytes per call, until
        `MAX_COPIED_BYTES` bytes of the log have been copied.

        Args:
            last: nothing more will come, so print all the rest, an incomplete line included.
        """
        while self.offset < MAX_COPIED_BYTES and (piece := self.read()):
            self.offset += len(piece)
            *lines, self.partial_line = (self.partial_line + piece).split(b"\n")
            self.write(lines)
            if len(self.partial_line) > COPY_CHUNK_BYTES:  # no line is waited for without an end
                self.write([self.partial_line])
                self.partial_line = b""
            if self.offset >= MAX_COPIED_BYTES:
                self.write([f"… {self.path} has what comes from here on".encode()])
                self.partial_line = b""
            if not last:
                return
        if last and self.partial_line:
            self.write([self.partial_line])
            self.partial_line = b""

    def read(self) -> bytes:
        """Return up to `COPY_CHUNK_BYTES` bytes of the log from `offset` on, which stays as it is;
        empty at its end, or if it cannot be read."""
        try:
            with open_to_read(self.path, follow_links=False) as file:
                file.seek(self.offset)
                return file.read(COPY_CHUNK_BYTES)
        except OSError:
            return b""

    def write(self, lines: list[bytes]) -> None:
        """Print these lines on standard output, each after the prefix; invalid UTF-8 is
        replaced."""
        if lines:
            text = b"".join(self.prefix + line + b"\n" for line in lines)
            sys.stdout.write(text.decode("utf-8", "replace"))
            sys.stdout.flush()
