"""The workers' output, copied line by line into the log of their job."""

from __future__ import annotations

import sys
from pathlib import Path

from dualml.files import open_to_read

#: Bytes copied at a time, and maximum bytes copied per worker; the worker's own file is complete.
PIECE, MOST = 2**16, 2**24


class Tail:
    """Follows a worker's log, and prints its complete lines prefixed with the worker's rank.

    Args:
        path: of its log.
        rank: of the worker.
        size: number of workers of the job; a single one gets no prefix.
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self.path, self.before = path, f"[{rank}] ".encode() if size > 1 else b""
        self.at, self.rest = 0, b""

    def copy(self, last: bool = False) -> None:
        """Print the lines that are new.

        Args:
            last: nothing more will come, so print an incomplete line, too.
        """
        while self.at < MOST and (piece := self.read()):
            self.at += len(piece)
            *lines, self.rest = (self.rest + piece).split(b"\n")
            self.write(lines)
            if len(self.rest) > PIECE:  # no line is waited for without an end
                self.write([self.rest])
                self.rest = b""
            if self.at >= MOST:
                self.write([f"… {self.path} has what comes from here on".encode()])
                self.rest = b""
            if not last:
                return
        if last and self.rest:
            self.write([self.rest])
            self.rest = b""

    def read(self) -> bytes:
        try:
            with open_to_read(self.path, links=False) as file:
                file.seek(self.at)
                return file.read(PIECE)
        except OSError:
            return b""

    def write(self, lines: list[bytes]) -> None:
        if lines:
            text = b"".join(self.before + line + b"\n" for line in lines)
            sys.stdout.write(text.decode("utf-8", "replace"))
            sys.stdout.flush()
