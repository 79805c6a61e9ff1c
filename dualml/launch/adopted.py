"""Processes that the framework's own launcher has started: ``torchrun``, ``msrun``.

There every rank is a ``dualml run`` of its own, with the same arguments. Rank 0 does what the only
process does otherwise: it makes the run folder, records and reports. The others wait for what rank
0 announces in the folder, and run their rank of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dualml.backend import Adopted, backends
from dualml.errors import UserError
from dualml.files import read_json, write_json
from dualml.launch.supervise import PEERS_S, SECONDARY, Ended, Launch, supervise
from dualml.launch.supervise import end as end_all

ANNOUNCED, POLL_S = ".sessions", 0.1
#: A rank may take so long to leave a group that rank 0 has left.
LEAVE_S = 5.0
#: The launcher starts the ranks within so many seconds of the process that only helps them.
COME_S = 5.0


def adopted() -> Adopted | None:
    """The launcher that started this process, if one of a backend's did."""
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
        words = [sys.executable, "-m", "dualml.worker.main", str(found.rank)]
        log = folders[0] / f"rank{found.rank}.log"
        launch = Launch([*words, *map(str, folders)], environ, log)
        # Where rank 0 has gone on, who still waits for its old rank waits in vain.
        gone_on = partial(older, folder / ANNOUNCED / f"{number + 1}.json", LEAVE_S)
        ended = supervise(
            [launch], lambda rank, event: None, limit=wait, silence=wait, over=gone_on
        )
        if ended.code or ended.reason:
            note = {"code": ended.code, "reason": ended.reason, "result": ended.results.get(0)}
            write_json(folder / ANNOUNCED / f"{number}.rank{found.rank}.json", note)
        number += 1


def fallen(folder: Path, number: int) -> Ended | None:
    """What the other ranks told of a session that failed for them: one that fell by itself, else,
    some time later, one that missed another."""
    secondary = None
    for path in sorted((folder / ANNOUNCED).glob(f"{number}.rank*.json")):
        told, rank = read_json(path), int(path.stem.partition(".rank")[2])
        result = told["result"]
        ended = Ended(told["code"], told["reason"], rank, {rank: result} if result else {})
        if told["reason"] or not missed(ended):
            return ended
        secondary = ended if older(path, PEERS_S) else secondary
    return secondary


def missed(ended: Ended) -> bool:
    """Whether the rank at fault only says that it waited in vain for another."""
    return ended.results.get(ended.rank, {}).get("kind") == SECONDARY


def at_fault(ended: Ended, folder: Path, number: int) -> Ended:
    """How the ranks of a session ended, from how rank 0 did and what the others told."""
    if (ended.code or ended.reason) and not missed(ended):
        return ended
    end = time.monotonic() + (PEERS_S if ended.code else 0)
    while (other := fallen(folder, number)) is None and time.monotonic() < end:
        time.sleep(POLL_S)
    return ended if other is None or (missed(other) and ended.code) else other


def older(path: Path, seconds: float) -> bool:
    """Whether a file is there, and has been for so long."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def check_fresh(folder: Path) -> None:
    """Raises `UserError` for a folder with announcements older than this process's launcher."""
    import psutil

    with contextlib.suppress(psutil.Error):
        if older(folder / ANNOUNCED, time.time() - psutil.Process(os.getppid()).create_time()):
            raise UserError(f"{folder} is not empty; choose another --out")


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
    """What a process that only helps does: its helper, until rank 0 announces the end, or until
    the ranks are gone: the launcher waits for this process. The helper ends with its input."""
    process = subprocess.Popen(
        list(found.helper),
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        number, end, ranks = 0, time.monotonic() + wait, dict[int, Any]()
        while process.poll() is None and time.monotonic() < end and still_there(ranks):
            path = folder / ANNOUNCED / f"{number}.json"
            if path.exists():
                if read_json(path)["places"] is None:
                    return
                number += 1
            time.sleep(POLL_S)
    finally:
        end_all([process])


def still_there(ranks: dict[int, Any]) -> bool:
    """Whether a rank of this launcher is alive, or none has come yet.

    Args:
        ranks: those seen so far; the launcher starts the same command for all of them.
    """
    import psutil

    me = psutil.Process()
    if not ranks and time.time() - me.create_time() > COME_S:
        return False
    with contextlib.suppress(psutil.Error):
        for other in psutil.Process(os.getppid()).children():
            if other != me and other.pid not in ranks and other.cmdline() == me.cmdline():
                ranks[other.pid] = other
    return not ranks or any(lives(rank) for rank in ranks.values())


def lives(process: Any) -> bool:
    """Whether a process has not ended, even if nobody has asked for its exit code."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def announce_end(folder: Path) -> None:
    """Tell the others that nothing more comes, however this process ends."""
    number = 0
    while (folder / ANNOUNCED / f"{number}.json").exists():
        number += 1
    announce(folder, number, None)
