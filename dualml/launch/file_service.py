"""File access of ranks on other machines to rank 0's run folder, limited to what they may read and
write."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common.bounded_io import Header, get_field, get_int, get_text
from dualml.common.errors import escape_unprintable
from dualml.common.files import open_to_read
from dualml.experiment.store.paths import MAX_PATH_CHARS, resolve_in_run
from dualml.experiment.store.sessions import SESSIONS
from dualml.experiment.store.trial import BOARD
from dualml.launch.connection import CHUNK_BYTES, describe_error

#: Longest delay of an answer to ``wait``, in seconds.
HOLD_S = 1.0
POLL_S = 0.02
#: Parts of a run folder that ranks may read, and those that they may write.
READABLE_FOLDERS, WRITABLE_FOLDERS = ("plan", "trials", SESSIONS), ("trials", SESSIONS)
#: Maximum bytes of a file.
MAX_FILE_BYTES = 2**42
MAX_ERROR_CHARS = 300

Answer = tuple[Header, bytes]
#: Number of incomplete files per connection, at most.
MAX_UNFINISHED_FILES = 16
#: Numbers of connections, used in names of incomplete files: larger than any pid.
serials = itertools.count(2**23)


@dataclass(frozen=True)
class FileService:
    """Access to the files of a run for one connection of one rank.

    Args:
        run: the run folder, without symbolic links.
        rank: of the other side.
        serial: number of the connection, in names of files that are being written.
        unfinished: file → bytes received so far.
    """

    run: Path
    rank: int
    serial: int = field(default_factory=lambda: next(serials))
    unfinished: dict[Path, int] = field(default_factory=dict)

    def handle_request(self, header: Header, body: bytes) -> Answer:
        """Return the answer to a request, a header and a body; of a refused or failed request, a
        header with its ``error``. Nothing is raised for it."""
        asked: dict[str, Callable[[Header, bytes], Answer]] = {
            "list": self.list_files,
            "get": self.read_piece,
            "put": self.write_piece,
            "remove": self.remove,
            "wait": self.wait_for_file,
            "age": self.file_age,
        }
        try:
            op = get_text(header, "op", 100)
            if op not in asked:
                raise ValueError(f"{op!r} is nothing that a rank can ask for")
            return asked[op](header, body)
        except ValueError as error:
            return {"error": f"rank 0: {escape_unprintable(str(error))[:MAX_ERROR_CHARS]}"}, b""
        except OSError as error:
            where = f"{escape_unprintable(str(error.filename))}: " if error.filename else ""
            return {"error": f"rank 0: {where}{describe_error(error)}"}, b""

    def close(self) -> None:
        """Remove files that this rank began to send and did not finish."""
        for fresh in self.unfinished:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)

    def resolve_path(self, header: Header, among: tuple[str, ...] = READABLE_FOLDERS) -> Path:
        """Return the path that a request names, which need not exist.

        Raises:
            ValueError: it is not in the folders ``among`` of the run folder.
        """
        return resolve_in_run(self.run, get_text(header, "path", MAX_PATH_CHARS), among)

    def writable_path(self, header: Header) -> Path:
        """Return the path that a request names, if this rank may write it: its failures, its
        entries of a store, and files called ``rankR.…`` in a trial.

        Raises:
            ValueError: it may not.
        """
        path = self.resolve_path(header, WRITABLE_FOLDERS)
        if path.parent == self.run / SESSIONS:
            allowed = re.fullmatch(rf"[0-9]{{1,9}}\.rank{self.rank}\.json", path.name) is not None
        elif path.parent.name == BOARD:
            allowed = path.name.endswith(f".{self.rank}")
        else:
            allowed = path.name.startswith(f"rank{self.rank}.")
        if not allowed:
            raise ValueError(f"rank {self.rank} may not write {header['path']!r}")
        return path

    def list_files(self, header: Header, _: bytes) -> Answer:
        """Answer with the sorted names of a folder's files (``files``), without folders and hidden
        files, such as those that are being written; with none if the folder does not exist."""
        folder = self.resolve_path(header)
        there = sorted(folder.iterdir()) if folder.is_dir() else []
        return {"files": [p.name for p in there if p.is_file() and p.name[0] != "."]}, b""

    def read_piece(self, header: Header, _: bytes) -> Answer:
        """Read a piece of at most `CHUNK_BYTES` bytes of a file, from byte ``at``; the answer says
        whether the file exists (``there``), and its whole ``size`` in bytes."""
        path, at = self.resolve_path(header), get_int(header, "at", 0, MAX_FILE_BYTES, 0)
        if not path.is_file():
            return {"there": False, "size": 0}, b""
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(at)
            return {"there": True, "size": size}, file.read(CHUNK_BYTES)

    def write_piece(self, header: Header, body: bytes) -> Answer:
        """Write the next piece of a file, which begins at byte ``at``; with the piece that says
        ``last`` the file gets its name. ``at`` 0 begins the file again. Missing folders are made.

        Raises:
            ValueError: this rank may not write it, a piece is missing before this one, or
                `MAX_UNFINISHED_FILES` other files are unfinished.
        """
        path, at = self.writable_path(header), get_int(header, "at", 0, MAX_FILE_BYTES, 0)
        last = get_field(header, "last", bool, False)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{self.serial}")
        if at != (self.unfinished.get(fresh, 0) if at else 0):
            raise ValueError(f"a piece from byte {at}; {self.unfinished.get(fresh, 0)} have come")
        if fresh not in self.unfinished and len(self.unfinished) >= MAX_UNFINISHED_FILES:
            raise ValueError(f"{MAX_UNFINISHED_FILES} files were begun and not finished")
        self.unfinished[fresh] = at + len(body)
        with fresh.open("ab" if at else "wb") as file:
            file.write(body)
        if last:
            os.replace(fresh, path)
            del self.unfinished[fresh]
        return {}, b""

    def remove(self, header: Header, _: bytes) -> Answer:
        """Remove the file that a request names, if it exists; `ValueError` if this rank may not
        write it. The answer is empty."""
        self.writable_path(header).unlink(missing_ok=True)
        return {}, b""

    def file_age(self, header: Header, _: bytes) -> Answer:
        """Answer with the ``age`` of a file, the seconds since it was written; null where it does
        not exist."""
        path = self.resolve_path(header)
        return {"age": time.time() - path.stat().st_mtime if path.exists() else None}, b""

    def wait_for_file(self, header: Header, _: bytes) -> Answer:
        """Answer whether a file exists (``there``); if it does not, wait for it up to `HOLD_S`
        seconds first."""
        path, end = self.resolve_path(header), time.monotonic() + HOLD_S
        while not (there := path.exists()) and time.monotonic() < end:
            time.sleep(POLL_S)
        return {"there": there}, b""
