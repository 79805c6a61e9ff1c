"""Files of rank 0's run folder, read and written by a rank on another machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dualml.common.bounded_io import Header, get_field, get_int
from dualml.common.errors import CommunicationError, UserError, escape_unprintable
from dualml.common.files import MAX_TEXT_BYTES, read_bytes
from dualml.experiment.store.paths import is_file_name, resolve_in_run
from dualml.launch.connection import CHUNK_BYTES, Connection, describe_error
from dualml.launch.credentials import RankCredentials
from dualml.launch.file_service import MAX_FILE_BYTES, READABLE_FOLDERS


class RemoteRunFolder:
    """Rank 0's run folder, over a connection to it.

    Args:
        seat: address of rank 0, and this rank.
        wire: the connection.
        run: folder of this machine's copy.
    """

    def __init__(self, seat: RankCredentials, wire: Connection, run: Path) -> None:
        self.seat, self.wire, self.run = seat, wire, run
        self.uploaded = dict[Path, tuple[int, int]]()

    def ask(self, op: str, path: str = "", body: bytes = b"", **more: Any) -> tuple[Header, bytes]:
        """Send a request to rank 0 and return its answer, a header and a body.

        ``more`` are further fields of the request.

        Raises:
            CommunicationError: rank 0 is gone, or refuses the request.
        """
        header = {"op": op, "path": path, "rank": self.seat.rank, **more}
        try:
            answer, content = self.wire.ask(header, body)
        except (OSError, ValueError) as error:
            raise CommunicationError(
                f"rank 0 at {self.seat} is gone: {describe_error(error)}"
            ) from None
        if "error" in answer:
            raise CommunicationError(escape_unprintable(str(answer["error"])))
        return answer, content

    @contextlib.contextmanager
    def checking_answer(self) -> Iterator[None]:
        """Turn a `ValueError` about the fields of an answer into a `CommunicationError`."""
        try:
            yield
        except ValueError as error:
            text = f"rank 0 at {self.seat} sends what this rank does not take: {error}"
            raise CommunicationError(text) from None

    def iter_pieces(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yield the size of a file in bytes with each of its pieces; the size is that of the first
        answer, and nothing beyond it is read. Yield nothing for a file that does not exist.
        `CommunicationError` as in `ask`, or if the file has become shorter."""
        size, at = None, 0
        while size is None or at < size:
            answer, piece = self.ask("get", path, at=at)
            with self.checking_answer():
                if not get_field(answer, "there", bool):
                    return
                size = get_int(answer, "size", 0, MAX_FILE_BYTES) if size is None else size
                if at < size and not piece:
                    raise ValueError(f"{path} ends after {at} of {size} bytes")
            yield size, piece[: size - at]
            at += len(piece)

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist.

        Raises:
            CommunicationError: it has more than `MAX_TEXT_BYTES` bytes, or rank 0 is gone.
        """
        parts = list[bytes]()
        for size, piece in self.iter_pieces(path):
            with self.checking_answer():
                if size > MAX_TEXT_BYTES:
                    raise ValueError(
                        f"{path} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are read"
                    )
            parts.append(piece)
        return b"".join(parts) if parts else None

    def copy(self, path: str, target: Path) -> None:
        """Copy a file of rank 0, of any size, to ``target`` on this machine; if it does not exist,
        change nothing.

        Raises:
            UserError: the disk has no room for it.
            CommunicationError: rank 0 is gone, or refuses the request.
        """
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        there = False
        try:
            with fresh.open("wb") as file:
                for size, piece in self.iter_pieces(path):
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
        """Write a file of rank 0's run folder; it appears there only when it is complete.
        `CommunicationError` as in `ask`; rank 0 takes only what this rank may write."""
        for at in range(0, max(1, len(content)), CHUNK_BYTES):
            piece = content[at : at + CHUNK_BYTES]
            self.ask("put", path, piece, at=at, last=at + len(piece) >= len(content))

    def fetch(self, folder: str, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Copy from rank 0 the files of a folder for whose names ``wanted`` is true; subfolders are
        left out, and the local folder is made.

        Raises:
            CommunicationError: rank 0 is gone, or names something that is not a file of a run
                folder.
            UserError: the disk has no room for a file.
        """
        with self.checking_answer():
            there = resolve_in_run(self.run, folder, READABLE_FOLDERS)
            names = get_field(self.ask("list", folder)[0], "files", list)
            if wrong := [
                name for name in names if not isinstance(name, str) or not is_file_name(name)
            ]:
                raise ValueError(
                    f"{escape_unprintable(str(wrong[0])[:100])!r} is no name of a file"
                )
        there.mkdir(parents=True, exist_ok=True)
        for name in filter(wanted, names):
            with self.checking_answer():
                target = resolve_in_run(self.run, f"{folder}/{name}", READABLE_FOLDERS)
            self.copy(f"{folder}/{name}", target)

    def upload(self, folder: Path, which: str = "*") -> None:
        """Upload this rank's own files (``rankR.…``) of a trial that changed since the last call,
        and remove from rank 0 those, of any trial, that were uploaded and no longer exist here.

        Args:
            folder: of the trial, on this machine.
            which: a pattern for the names of the files to upload.
        """
        own_files = sorted(folder.glob(f"rank{self.seat.rank}.*"))
        for path in (path for path in own_files if path.match(which)):
            status = path.stat()
            if self.uploaded.get(path) != (stamp := (status.st_mtime_ns, status.st_size)):
                self.write(str(path.relative_to(self.run)), read_bytes(path, MAX_FILE_BYTES))
                self.uploaded[path] = stamp
        for path in [path for path in self.uploaded if not path.exists()]:
            self.ask("remove", str(path.relative_to(self.run)))
            del self.uploaded[path]
