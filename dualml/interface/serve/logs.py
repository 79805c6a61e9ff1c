"""Read the logs of a run's processes, chunk by chunk."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualml.common.files import open_to_read, resolve_links
from dualml.experiment.store.trial import HOSTS, find_logs, trial_folder
from dualml.interface.serve.cache import file_stamp
from dualml.interface.serve.run import RunView

#: Bytes to show from the end of an existing log, and maximum number of logs to choose from.
TAIL_BYTES, MAX_LOGS = 64 * 2**10, 500


@dataclass(frozen=True)
class LogChunk:
    """Part of a log: the text of bytes ``start`` to ``end``."""

    text: str
    start: int
    end: int


def list_logs(run: Path, seen: RunView, more: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    """List the logs of a run as name → file, the most recently written first, empty ones last, at
    most `MAX_LOGS`. Files that links lead to outside of the run folder are left out.

    Args:
        more: logs of the jobs that ran it, which may be anywhere.
    """
    every = dict(more)
    own = {*every.values()}
    for trial in seen.trials:
        place = trial_folder(run, trial.record.key)
        for path in find_logs(place):
            every[f"{path.parent.relative_to(run / 'trials').as_posix()}/{path.stem}"] = path
    for path in find_logs(run / HOSTS):
        every[f"hosts/{path.stem}"] = path
    written = {
        name: file_stamp(path)
        for name, path in every.items()
        if path in own or is_inside(path, run)
    }
    there = {name: (at[1] > 0, at[2]) for name, at in written.items() if at is not None}
    order = sorted(there, key=lambda name: there[name], reverse=True)
    return {name: every[name] for name in order[:MAX_LOGS]}


def is_inside(path: Path, run: Path) -> bool:
    """Return whether a file is inside a run folder with links resolved: run folders come from
    others."""
    return resolve_links(path).is_relative_to(resolve_links(run))


def read_log(path: Path, after: int | None = None) -> LogChunk:
    """Read a log after ``after`` bytes, or its end if that is None or too far from the end.

    Returns at most `TAIL_BYTES` bytes, without splitting a character; a chunk that starts elsewhere
    starts at a line. Empty if the log cannot be read.
    """
    try:
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - TAIL_BYTES)
            if after is not None and start <= after <= size:
                start = after
            file.seek(start)
            content = file.read(TAIL_BYTES)
    except OSError:
        return LogChunk("", 0, 0)
    if start and start != after and (line := content.find(b"\n") + 1):
        start, content = start + line, content[line:]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    return LogChunk(text, start, start + len(content) - len(decoder.getstate()[0]))
