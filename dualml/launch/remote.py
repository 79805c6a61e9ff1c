"""Files of rank 0's run folder, read and written by a rank on another machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dualml.errors import CommunicationError, UserError, plain
from dualml.files import MOST_TEXT, read_bytes
from dualml.launch.seat import Seat
from dualml.launch.shelf import LARGEST, READ
from dualml.launch.wire import PIECE, Wire, reason
from dualml.messages import Header, field_of, number_of
from dualml.store.paths import is_name, place_in


class Remote:
    """Rank 0's run folder, over a connection to it.

    Args:
        seat: address of rank 0, and this rank.
        wire: the connection.
        run: folder of this machine's copy.
    """

    def __init__(self, seat: Seat, wire: Wire, run: Path) -> None:
        self.seat, self.wire, self.run = seat, wire, run
        self.sent = dict[Path, tuple[int, int]]()

    def ask(self, op: str, path: str = "", body: bytes = b"", **more: Any) -> tuple[Header, bytes]:
        """Send a request to rank 0 and return its answer.

        Raises:
            CommunicationError: rank 0 is gone, or refuses the request.
        """
        header = {"op": op, "path": path, "rank": self.seat.rank, **more}
        try:
            answer, content = self.wire.ask(header, body)
        except (OSError, ValueError) as error:
            raise CommunicationError(f"rank 0 at {self.seat} is gone: {reason(error)}") from None
        if "error" in answer:
            raise CommunicationError(plain(str(answer["error"])))
        return answer, content

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Turn a `ValueError` about the fields of an answer into a `CommunicationError`."""
        try:
            yield
        except ValueError as error:
            text = f"rank 0 at {self.seat} sends what this rank does not take: {error}"
            raise CommunicationError(text) from None

    def pieces(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yield the size of a file with each of its pieces; the size is that of the first answer.
        Yield nothing for a file that does not exist."""
        size, at = None, 0
        while size is None or at < size:
            answer, piece = self.ask("get", path, at=at)
            with self.understood():
                if not field_of(answer, "there", bool):
                    return
                size = number_of(answer, "size", 0, LARGEST) if size is None else size
                if at < size and not piece:
                    raise ValueError(f"{path} ends after {at} of {size} bytes")
            yield size, piece[: size - at]
            at += len(piece)

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        parts = list[bytes]()
        for size, piece in self.pieces(path):
            with self.understood():
                if size > MOST_TEXT:
                    raise ValueError(f"{path} has {size:,} bytes; at most {MOST_TEXT:,} are read")
            parts.append(piece)
        return b"".join(parts) if parts else None

    def copy(self, path: str, target: Path) -> None:
        """Copy a file of any size, if it exists.

        Raises:
            UserError: the disk has no room for it.
        """
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        there = False
        try:
            with fresh.open("wb") as file:
                for size, piece in self.pieces(path):
                    if not file.tell() and size > (free := shutil.disk_usage(self.run).free):
                        raise UserError(
                            f"{path} has {size:,} bytes, and {self.run} {free:,} left: free some "
                            "space, or name another folder with TMPDIR, or --out with --keep-local"
                        )
                    file.write(piece)
                    there = True
            if there:
                os.replace(fresh, target)
        finally:
            fresh.unlink(missing_ok=True)

    def write(self, path: str, content: bytes) -> None:
        """Write a file; it appears only when it is complete."""
        for at in range(0, max(1, len(content)), PIECE):
            piece = content[at : at + PIECE]
            self.ask("put", path, piece, at=at, last=at + len(piece) >= len(content))

    def fetch(self, folder: str, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Copy the files of a folder for whose names ``wanted`` is true.

        Raises:
            CommunicationError: rank 0 names something that is not a file of a run folder.
        """
        with self.understood():
            there = place_in(self.run, folder, READ)
            names = field_of(self.ask("list", folder)[0], "files", list)
            if wrong := [name for name in names if not isinstance(name, str) or not is_name(name)]:
                raise ValueError(f"{plain(str(wrong[0])[:100])!r} is no name of a file")
        there.mkdir(parents=True, exist_ok=True)
        for name in filter(wanted, names):
            with self.understood():
                target = place_in(self.run, f"{folder}/{name}", READ)
            self.copy(f"{folder}/{name}", target)

    def deliver(self, folder: Path, which: str = "*") -> None:
        """Upload the files that this rank has changed in a trial's folder since the last call.

        Args:
            folder: of the trial, on this machine.
            which: a pattern for the names of the files.
        """
        own_files = sorted(folder.glob(f"rank{self.seat.rank}.*"))
        for path in (path for path in own_files if path.match(which)):
            status = path.stat()
            if self.sent.get(path) != (stamp := (status.st_mtime_ns, status.st_size)):
                self.write(str(path.relative_to(self.run)), read_bytes(path, LARGEST))
                self.sent[path] = stamp
        for path in [path for path in self.sent if not path.exists()]:
            self.ask("remove", str(path.relative_to(self.run)))
            del self.sent[path]
