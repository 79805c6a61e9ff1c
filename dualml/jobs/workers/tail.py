"""What workers print, copied line by line into the log of their job."""

from __future__ import annotations

import sys
from pathlib import Path

from dualml.files import open_to_read

#: Bytes that are copied at a time, and of one worker altogether: its own file has all.
PIECE, MOST = 2**16, 2**24


class Tail:
    """Reads a worker's log on, and prints its whole lines with the worker's number before them.

    Args:
        path: of its log.
        size: workers of the job; one alone needs no number.
    """

    def __init__(self, path: Path, rank: int, size: int) -> None:
        self.path, self.before = path, f"[{rank}] ".encode() if size > 1 else b""
        self.at, self.rest = 0, b""

    def copy(self, last: bool = False) -> None:
        """Print what has come.

        Args:
            last: nothing comes any more: also a line without an end.
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
