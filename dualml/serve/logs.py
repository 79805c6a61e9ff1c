"""What the processes of a run print, piece by piece."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualml.files import open_to_read, resolved
from dualml.serve.cache import stamp
from dualml.serve.run import Seen
from dualml.store.trial import HOSTS, logs_in, trial_folder

#: Bytes of a log that are shown of what was there before, and logs to choose from.
LAST, MOST = 64 * 2**10, 500


@dataclass(frozen=True)
class Piece:
    """Part of a log, in bytes ``start`` to ``end``."""

    text: str
    start: int
    end: int


def logs(run: Path, seen: Seen, more: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    """Name → file, of all logs that there are: the last one written to first, empty ones last.

    Args:
        more: of the jobs that ran it.
    """
    every = dict(more)
    own = {*every.values()}
    for trial in seen.trials:
        place = trial_folder(run, trial.record.key)
        for path in logs_in(place):
            every[f"{path.parent.relative_to(run / 'trials').as_posix()}/{path.stem}"] = path
    for path in logs_in(run / HOSTS):
        every[f"hosts/{path.stem}"] = path
    written = {name: stamp(path) for name, path in every.items()
               if path in own or inside(path, run)}  # fmt: skip
    there = {name: (at[1] > 0, at[2]) for name, at in written.items() if at is not None}
    order = sorted(there, key=lambda name: there[name], reverse=True)
    return {name: every[name] for name in order[:MOST]}


def inside(path: Path, run: Path) -> bool:
    """Whether a file is in a run folder, and no link out of it: run folders travel."""
    return resolved(path).is_relative_to(resolved(run))


def read(path: Path, after: int | None = None) -> Piece:
    """What stands after so many bytes, or the end of it: at most `LAST` bytes, whole letters, and
    whole lines where it begins later. Nothing where it cannot be read."""
    try:
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - LAST)
            if after is not None and start <= after <= size:
                start = after
            file.seek(start)
            content = file.read(LAST)
    except OSError:
        return Piece("", 0, 0)
    if start and start != after and (line := content.find(b"\n") + 1):
        start, content = start + line, content[line:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    return Piece(text, start, start + len(content) - len(decoder.getstate()[0]))
