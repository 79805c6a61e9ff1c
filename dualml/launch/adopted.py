"""Processes that the framework's own launcher has started: ``torchrun``, ``msrun``.

There every rank is a ``dualml run`` of its own, with the same arguments. Rank 0 does what the only
process does otherwise: it makes the run folder, records and reports. The others wait for what rank
0 announces in the folder, and run their rank of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError
from dualml.files import read_json, write_json
from dualml.launch.supervise import Launch, supervise
from dualml.launch.supervise import end as end_all

ANNOUNCED, POLL_S = ".sessions", 0.1


@dataclass(frozen=True)
class Adopted:
    """What the launcher says of this process.

    Attributes:
        launcher: its name.
        backend: whose launcher it is.
        rank, size: this rank, −1 for a process that only helps the ranks find one another.
        sessions: groups of ranks that its rendezvous can serve, one after the other; 0: any number.
        helper: command of the process that only helps.
    """

    launcher: str
    backend: str
    rank: int
    size: int
    sessions: int = 0
    helper: Sequence[str] = ()


def adopted() -> Adopted | None:
    """The launcher that started this process, if one of a backend's did."""
    from dualml.backend import backends

    for info in backends().values():
        if (found := info.adopted()) is not None:
            return found
    return None


def check(
    found: Adopted,
    out: Path | None,
    world_size: int | None,
    backend: str | None,
    rendezvous: str | None = None,
) -> None:
    """Raises `UserError` for options that do not fit the launcher."""
    told = f"started by {found.launcher} with {found.size} ranks"
    if out is None:
        raise UserError(f"{told}: name the run folder with --out, so that all ranks find it")
    if world_size not in (None, found.size):
        raise UserError(f"{told}: --world-size {world_size} is another number of ranks")
    if backend not in (None, found.backend):
        raise UserError(f"{told}: it serves --backend {found.backend} only; received {backend}")
    if rendezvous not in (None, "auto", "env://"):
        raise UserError(f"{told}: its ranks have a rendezvous; leave out --rendezvous {rendezvous}")


def announce(folder: Path, number: int, places: Sequence[Path] | None) -> None:
    """Rank 0 tells the others what comes next; None is the end."""
    where = folder / ANNOUNCED
    where.mkdir(exist_ok=True)
    told = None if places is None else [str(place.relative_to(folder)) for place in places]
    write_json(where / f"{number}.json", {"places": told})


def follow(found: Adopted, folder: Path, environ: Mapping[str, str], wait: float) -> None:
    """What a rank other than 0 does: its part of every session that rank 0 announces.

    Raises:
        UserError: rank 0 announced nothing for ``wait`` seconds.
    """
    number = 0
    while True:
        places = awaited(folder / ANNOUNCED / f"{number}.json", wait)
        if places is None:
            return
        folders = [folder / place for place in places]
        words = [sys.executable, "-m", "dualml.runner.worker", str(found.rank)]
        log = folders[0] / f"rank{found.rank}.log"
        launch = Launch([*words, *map(str, folders)], environ, log)
        supervise([launch], lambda rank, event: None, limit=wait, silence=wait)
        number += 1


def awaited(path: Path, wait: float) -> list[str] | None:
    """The places of an announcement, when it is there."""
    end = time.monotonic() + wait
    while not path.exists():
        if time.monotonic() > end:
            raise UserError(f"rank 0 announced nothing in {path.parent} for {wait:g} s")
        time.sleep(POLL_S)
    places: list[str] | None = read_json(path)["places"]
    return places


def help_ranks(found: Adopted, folder: Path, environ: Mapping[str, str], wait: float) -> None:
    """What a process that only helps does: its helper, until rank 0 announces the end."""
    process = subprocess.Popen(
        list(found.helper), env={**os.environ, **environ}, start_new_session=True
    )
    try:
        number, end = 0, time.monotonic() + wait
        while process.poll() is None and time.monotonic() < end:
            path = folder / ANNOUNCED / f"{number}.json"
            if path.exists():
                if read_json(path)["places"] is None:
                    return
                number += 1
            time.sleep(POLL_S)
    finally:
        end_all([process])


def announce_end(folder: Path) -> None:
    """Tell the others that nothing more comes, however this process ends."""
    number = 0
    while (folder / ANNOUNCED / f"{number}.json").exists():
        number += 1
    announce(folder, number, None)
