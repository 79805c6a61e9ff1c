"""Diagnosis of workers that did not work together, such as those of a script that never reads
``RANK``.

Only what can be observed from outside is reported: whether anything connected to the port where a
process group is formed, and whether all workers have printed the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dualml.common.files import open_to_read
from dualml.common.words import Messages
from dualml.runner.jobs.workers.record import (
    WorkerExit,
    first_failure,
    first_failure_under_slurm,
    log_path,
    read_exits,
)

#: The kernel's tables of connections, and the state of a listening socket in them.
TABLES, LISTENS = ("/proc/net/tcp", "/proc/net/tcp6"), "0A"
CHUNK = 2**20


def is_port_used(ports: Sequence[int]) -> bool | None:
    """Return whether there is a connection of this machine to or from one of these ports, or one
    has just ended; a listening socket is none. None where the system does not tell."""
    wanted = {f"{port:04X}" for port in ports}
    told = False
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as file:
                next(file, None)
                told = True
                for line in file:
                    local, remote, state = line.split(None, 4)[1:4]
                    ends = {local.rpartition(":")[2], remote.rpartition(":")[2]}
                    if state != LISTENS and wanted & ends:
                        return True
        except (OSError, ValueError):
            continue
    return False if told else None


def log_digest(out: Path, rank: int) -> str | None:
    """Return the SHA-256, in hex, of a worker's output, or None if it has printed nothing."""
    digest = hashlib.sha256()
    try:
        with open_to_read(log_path(out, rank), follow_links=False) as file:
            size = 0
            while piece := file.read(CHUNK):
                digest.update(piece)
                size += len(piece)
    except OSError:
        return None
    return digest.hexdigest() if size else None


def describe_end(out: Path, size: int, port: int, lang: str, slurm: bool = False) -> str | None:
    """Describe the end of a command in a sentence: which worker failed, or that workers which all
    ended well seem not to have worked together.

    Args:
        out: folder with their logs and records.
        size: number of workers.
        port: where they could have formed a group.
        lang: language of the sentence.
        slurm: whether Slurm ran them.

    Returns:
        None where there is nothing to say.
    """
    exits = read_exits(out, size)
    failed = first_failure_under_slurm(exits, size) if slurm else first_failure(exits)
    if failed is not None:
        return failed.describe_failure()
    lost = sorted(set(range(size)) - {ended.rank for ended in exits})
    if any(ended.code for ended in exits):
        return Messages(lang)("workers.lost", ranks=", ".join(map(str, lost)), size=size)
    if size < 2 or lost:
        return None
    return diagnose(exits, [log_digest(out, rank) for rank in range(size)], port, lang)


def diagnose(
    endings: Sequence[WorkerExit], digests: Sequence[str | None], port: int, lang: str
) -> str | None:
    """Return a sentence about workers that never connected to ``port``, or that printed the same
    output, so that they seem to have worked each on its own; None if they connected, or nothing of
    the kind was observed.

    Args:
        endings: of all workers, which ended well; at least two.
        digests: of each worker's output; None for an empty one.
        port: where they could have formed a group.
        lang: language of the sentence.
    """
    words, size = Messages(lang), len(endings)
    met = next((ending.met for ending in endings if ending.met is not None), None)
    same = digests[0] is not None and len(set(digests)) == 1
    if met:
        return None
    if met is None:
        return words("workers.same", size=size) if same else None
    return words("workers.ignored" if same else "workers.apart", size=size, port=port)
