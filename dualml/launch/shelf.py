"""What ranks on other machines may read of rank 0's run folder, and write into it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError
from dualml.launch.wire import PIECE, Header, reason
from dualml.store.sessions import SESSIONS
from dualml.store.trial import BOARD

#: How long an answer to ``wait`` is held back at most.
HOLD_S = 1.0
POLL_S = 0.02
READ, WRITTEN = ("plan", "trials", SESSIONS), ("trials", SESSIONS)
#: Of a path, so that none leads out of the folder.
PART = re.compile(r"^(?!\.{1,2}$)[\w.-]{1,255}$")

Answer = tuple[Header, bytes]


@dataclass(frozen=True)
class Shelf:
    """The files of a run, for one rank.

    Args:
        run: the run folder, without symbolic links.
    """

    run: Path
    rank: int

    def answer(self, header: Header, body: bytes) -> Answer:
        """What is asked for, or why not."""
        asked: dict[str, Callable[[Header, bytes], Answer]] = {
            "list": self.listed, "get": self.got, "put": self.put, "remove": self.remove,
            "wait": self.awaited, "age": self.age,
        }  # fmt: skip
        try:
            return asked[str(header.get("op"))](header, body)
        except (UserError, KeyError, TypeError, ValueError) as error:
            return {"error": f"rank 0: {error}"}, b""
        except OSError as error:
            return {"error": f"rank 0: {error.filename}: {reason(error)}"}, b""

    def path(self, header: Header, among: tuple[str, ...] = READ) -> Path:
        """Raises `UserError` for what is not in these parts of the run folder."""
        text = str(header.get("path"))
        parts = text.split("/")
        path = self.run.joinpath(*parts)
        inside = all(map(PART.match, parts)) and parts[0] in among
        if not inside or not path.resolve().is_relative_to(self.run):
            raise UserError(f"{text!r} is no path of a run folder")
        return path

    def own(self, header: Header) -> Path:
        """Raises `UserError` for what this rank may not write."""
        path = self.path(header, WRITTEN)
        note = path.parent.name == BOARD and path.name.endswith(f".{self.rank}")
        if not note and f"rank{self.rank}" not in path.name.split("."):
            raise UserError(f"rank {self.rank} may not write {header.get('path')!r}")
        return path

    def listed(self, header: Header, _: bytes) -> Answer:
        """The names of a folder's files, without those that are being written."""
        folder = self.path(header)
        there = sorted(folder.iterdir()) if folder.is_dir() else []
        return {"files": [p.name for p in there if p.is_file() and p.name[0] != "."]}, b""

    def got(self, header: Header, _: bytes) -> Answer:
        """A piece of a file."""
        try:
            with self.path(header).open("rb") as file:
                file.seek(int(header.get("at", 0)))
                return {"there": True}, file.read(PIECE)
        except (FileNotFoundError, NotADirectoryError):
            return {"there": False}, b""

    def put(self, header: Header, body: bytes) -> Answer:
        """The next piece of a file; with the last one it stands where it belongs."""
        path, at = self.own(header), int(header.get("at", 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.part")
        with fresh.open("r+b" if at else "wb") as file:
            file.seek(at)
            file.write(body)
        if header.get("last"):
            os.replace(fresh, path)
        return {}, b""

    def remove(self, header: Header, _: bytes) -> Answer:
        self.own(header).unlink(missing_ok=True)
        return {}, b""

    def age(self, header: Header, _: bytes) -> Answer:
        """Seconds since a file was written; null where there is none."""
        path = self.path(header)
        return {"age": time.time() - path.stat().st_mtime if path.exists() else None}, b""

    def awaited(self, header: Header, _: bytes) -> Answer:
        """Whether a file is there; not before a moment has passed, where it is not."""
        path, end = self.path(header), time.monotonic() + HOLD_S
        while not (there := path.exists()) and time.monotonic() < end:
            time.sleep(POLL_S)
        return {"there": there}, b""
