"""Processes that the framework's own launcher has started: ``torchrun``, ``msrun``.

There every rank is a ``dualml run`` of its own, with the same arguments. Rank 0 does what the only
process does otherwise: it makes the run folder, records and reports. The others wait for what rank
0 announces in the folder, and run their rank of it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dualml.backend import Adopted, backends
from dualml.errors import UserError
from dualml.launch.process import Launch
from dualml.launch.supervise import PEERS_S, SECONDARY, Ended, supervise
from dualml.launch.supervise import end as end_all
from dualml.machine import python
from dualml.store.sessions import SESSIONS, Failure, announcement, failure, failures
from dualml.store.trial import log_path

POLL_S = 0.1
#: A rank that has waited for so long for the first announcement says for what.
WORD_S = 20.0
SAME = "--out must be the same folder for all ranks, on a disk that all of them see"
#: A rank may take so long to leave a group that rank 0 has left.
LEAVE_S = 5.0
#: The launcher starts the ranks within so many seconds of the process that only helps them.
COME_S = 5.0


def adopted() -> Adopted | None:
    """The launcher that started this process, if one of a backend's did."""
    launchers = (info.adopted() for info in backends().values())
    return next((launcher for launcher in launchers if launcher is not None), None)


def check(
    launcher: Adopted,
    out: Path | None,
    world_size: int | None,
    backend: str | None,
    rendezvous: str | None = None,
) -> None:
    """Raises `UserError` for options that do not fit the launcher."""
    who = f"started by {launcher.launcher} with {launcher.size} ranks"
    if out is None:
        raise UserError(f"{who}: name the run folder with --out, so that all ranks find it")
    if world_size not in (None, launcher.size):
        raise UserError(f"{who}: --world-size {world_size} is another number of ranks")
    if backend not in (None, launcher.backend):
        raise UserError(f"{who}: it serves --backend {launcher.backend} only; received {backend}")
    if rendezvous not in (None, "auto", "env://"):
        raise UserError(f"{who}: its ranks have a rendezvous; leave out --rendezvous {rendezvous}")


def follow(rank: int, run: Path, environ: Mapping[str, str], wait: float) -> None:
    """What a rank other than 0 does: its part of every session that rank 0 announces.

    Raises:
        UserError: rank 0 announced nothing for ``wait`` seconds.
    """
    for number in itertools.count():
        places = awaited(run, number, wait)
        if places is None:
            return
        folders = [run / place for place in places]
        words = python("-m", "dualml.worker.main", str(rank), *map(str, folders))
        launch = Launch(words, environ, log_path(folders[0], rank))
        # Where rank 0 has gone on, who still waits for its old rank waits in vain.
        gone_on = partial(older, run / announcement(number + 1).name, LEAVE_S)
        ended = supervise(
            [launch], lambda rank, event: None, limit=wait, silence=wait, over=gone_on
        )
        if ended.code or ended.reason:
            note = Failure(code=ended.code, reason=ended.reason, result=ended.results.get(0))
            failure(number, rank).write(run, note)


def fallen(run: Path, number: int) -> Ended | None:
    """What the other ranks left of a session that failed for them: one that fell by itself, else,
    some time later, one that missed another."""
    secondary = None
    for rank, path, note in failures(run, number):
        ended = Ended(note.code, note.reason, rank, {rank: note.result} if note.result else {})
        if note.reason or not missed(ended):
            return ended
        secondary = ended if older(path, PEERS_S) else secondary
    return secondary


def missed(ended: Ended) -> bool:
    """Whether the rank at fault only says that it waited in vain for another."""
    return ended.results.get(ended.rank, {}).get("kind") == SECONDARY


def at_fault(ended: Ended, run: Path, number: int) -> Ended:
    """How the ranks of a session ended, from how rank 0 did and what the others left."""
    if (ended.code or ended.reason) and not missed(ended):
        return ended
    end = time.monotonic() + (PEERS_S if ended.code else 0)
    while (other := fallen(run, number)) is None and time.monotonic() < end:
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
        if older(folder / SESSIONS, time.time() - psutil.Process(os.getppid()).create_time()):
            raise UserError(f"{folder} is not empty; choose another --out")


def awaited(run: Path, number: int, wait: float) -> list[str] | None:
    """The places of an announcement, when it is there; says so if that takes long."""
    begin, waits = time.monotonic(), f"rank 0 announced nothing in {(run / SESSIONS).resolve()}"
    warned = number > 0  # then the folder is the right one
    while (announced := announcement(number).read_if_there(run)) is None:
        passed = time.monotonic() - begin
        if passed > wait:
            raise UserError(f"{waits} for {wait:g} s; {SAME}")
        if passed > WORD_S and not warned:
            warned = True
            text = f"dualml: {waits} for {WORD_S:g} s, and this rank waits on; {SAME}"
            print(text, file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return announced.places


def help_ranks(launcher: Adopted, run: Path, environ: Mapping[str, str], wait: float) -> None:
    """What a process that only helps does: its helper, until rank 0 announces the end, or until
    the ranks are gone: the launcher waits for this process. The helper ends with its input."""
    process = subprocess.Popen(
        list(launcher.helper),
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        number, end, ranks = 0, time.monotonic() + wait, dict[int, Any]()
        while process.poll() is None and time.monotonic() < end and still_there(ranks):
            if (announced := announcement(number).read_if_there(run)) is not None:
                if announced.places is None:
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
