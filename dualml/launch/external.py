"""Ranks started from outside: by the framework's launcher (``torchrun``, ``msrun``), or by the user
in one terminal each.

Every rank is a ``dualml run`` of its own. Rank 0 makes the run folder, records and reports, as a
single process would. The others wait for its announcements and run their rank: in the run folder
where they can see it, else through `dualml.launch.remote_client`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from dualml.backend import ExternalLaunch, backends
from dualml.common.errors import UserError, did_you_mean, escape_unprintable
from dualml.experiment.store.sessions import (
    SESSIONS,
    Announcement,
    RankFailure,
    announcement_file,
    failure_file,
    iter_failures,
)
from dualml.launch.supervise import PEERS_S, SECONDARY, GroupResult
from dualml.launch.training import TRIALS, TrainingRanks, describe_process, start_and_train

POLL_S = 0.1
#: Seconds after which a rank that waits for the first announcement prints a notice.
WORD_S = 20.0
#: Advice to a rank that does not find rank 0's announcement.
SAME_FOLDER_HINT = (
    "--out must be the same folder for all ranks, on a disk that all of them see; without one, "
    "give all ranks --rendezvous tcp://HOST:PORT, with an address of rank 0's machine"
)
#: Seconds that a rank may take to leave a group that rank 0 has left.
LEAVE_S = 5.0


def detect_external_launch() -> ExternalLaunch | None:
    """Return the framework's launcher (``torchrun``, ``msrun``) that started this process, with its
    rank and the number of ranks; None if there is none, as for a rank that the user starts by
    hand."""
    launchers = (info.adopted() for info in backends().values())
    return next((launcher for launcher in launchers if launcher is not None), None)


def manual_launch(
    rank: int | None, world_size: int | None, rendezvous: str | None
) -> ExternalLaunch | None:
    """Return the launch that the options describe where the user starts each rank by hand; None
    without ``--rank``.

    Raises:
        UserError: options are missing or do not fit one another.
    """
    if rank is None:
        return None
    if world_size is None or not (rendezvous or "").startswith("tcp://"):
        raise UserError(
            f"--rank {rank} needs --world-size N and --rendezvous tcp://HOST:PORT, with an address "
            "of rank 0's machine, the same for all ranks"
        )
    if world_size < 2 or not 0 <= rank < world_size:
        raise UserError(f"--rank {rank} of --world-size {world_size}: ranks go from 0 to size - 1")
    return ExternalLaunch("--rank", "", rank, world_size)


def check_launch_options(
    launcher: ExternalLaunch,
    out: Path | None,
    world_size: int | None,
    backend: str | None,
    rendezvous: str | None = None,
) -> None:
    """Raise `UserError` for options that do not fit a framework's launcher: no ``out``, another
    ``world_size`` or ``backend`` than its own, or a ``rendezvous`` other than ``auto``, ``env://``
    and ``tcp://…``. Accept any where the user starts the ranks by hand."""
    if not launcher.backend:
        return
    who = f"started by {launcher.launcher} with {launcher.size} ranks"
    if out is None:
        raise UserError(f"{who}: name the run folder with --out, so that all ranks find it")
    if world_size not in (None, launcher.size):
        raise UserError(f"{who}: --world-size {world_size} is another number of ranks")
    if backend not in (None, launcher.backend):
        raise UserError(f"{who}: it serves --backend {launcher.backend} only; received {backend}")
    if rendezvous not in (None, "auto", "env://") and not rendezvous.startswith("tcp://"):
        raise UserError(f"{who}: its ranks have a rendezvous; leave out --rendezvous {rendezvous}")


class SessionClient(Protocol):
    """The side of a rank other than 0 in the sessions that rank 0 announces."""

    def next_announcement(self, number: int) -> Announcement:
        """Wait for the announcement of session ``number``, from 0, and return it; without
        ``places`` it is the end of the run."""

    def trial_folders(self, announced: Announcement) -> list[Path]:
        """Return this rank's folders of the session's trials, with the files that it needs; they
        may have to be fetched first."""

    def worker_environ(self, announced: Announcement) -> Mapping[str, str]:
        """Return the variables that the rank's worker needs before it imports the framework."""

    def is_superseded(self, number: int) -> bool:
        """Return whether rank 0 went on to the session after ``number`` more than `LEAVE_S`
        seconds ago. It is polled while the rank runs; an implementation may ask rank 0 over the
        network now and then, and return False in between."""

    def report_failure(self, number: int, note: RankFailure) -> None:
        """Report to rank 0 how this rank's part failed."""

    def finish_session(self, folders: list[Path]) -> None:
        """Finish a session, however it ended: bring what this rank wrote into ``folders``, those of
        `trial_folders`, to rank 0, if it does not see them and is to have them."""


@dataclass(frozen=True)
class SharedFolderClient:
    """A `SessionClient` in a run folder that all ranks see.

    Args:
        rank: of this process.
        run: the run folder.
        start: identifies this start of the ranks, see `ExternalLaunch`.
        wait: seconds to wait for an announcement, at most.
    """

    rank: int
    run: Path
    start: str
    wait: float

    def next_announcement(self, number: int) -> Announcement:
        """Wait until rank 0 writes the announcement of session ``number`` to the run folder, and
        return it; `UserError` after `wait` seconds."""
        return wait_for_announcement(self.run, number, self.wait, self.start)

    def trial_folders(self, announced: Announcement) -> list[Path]:
        """Return the trial folders in the shared run folder."""
        return [self.run / place for place in announced.places or ()]

    def worker_environ(self, announced: Announcement) -> Mapping[str, str]:
        """Return the environment variables that the announced backend needs for its threads."""
        return backends()[announced.backend].environ(announced.threads)

    def is_superseded(self, number: int) -> bool:
        """Return whether the announcement of the session after ``number`` is there and older than
        `LEAVE_S` seconds."""
        # Once rank 0 has gone on, waiting for its rank of the old session is in vain.
        return is_older(self.run / announcement_file(number + 1).name, LEAVE_S)

    def report_failure(self, number: int, note: RankFailure) -> None:
        """Write the failure to the run folder, where rank 0 finds it."""
        failure_file(number, self.rank).write(self.run, note)

    def finish_session(self, folders: list[Path]) -> None:
        """Do nothing: the files are in rank 0's folder already."""


def follow_leader(rank: int, sessions: SessionClient, limit: float) -> str:
    """Run as a rank other than 0: take part in every session that rank 0 announces, in a worker
    process. A failure is reported to rank 0, and the next session awaited.

    Args:
        rank: of this process.
        sessions: receives the announcements.
        limit: seconds of one trial, at most.

    Returns:
        Why the run failed, from rank 0; empty on success.

    Raises:
        UserError: rank 0 announced nothing in time, or a backend that this machine lacks.
    """
    number = 0
    while (announced := sessions.next_announcement(number)).places is not None:
        if announced.backend not in (known := backends()):
            raise UserError(
                f"rank 0 announces backend {escape_unprintable(announced.backend)!r}, which this "
                "machine does "
                f"not have{did_you_mean(announced.backend, known)}; install it here, too"
            )
        folders = sessions.trial_folders(announced)
        environ = sessions.worker_environ(announced)
        ended = start_and_train(
            TrainingRanks(
                processes=[describe_process(TRIALS, rank, folders, environ)],
                limit=limit,
                silence=limit,
                is_abandoned=partial(sessions.is_superseded, number),
            )
        )
        if ended.code or ended.reason:
            note = RankFailure(code=ended.code, reason=ended.reason, result=ended.results.get(0))
            sessions.report_failure(number, note)
        sessions.finish_session(folders)
        number += 1
    return escape_unprintable(announced.why)


def find_failed_rank(run: Path, number: int) -> GroupResult | None:
    """Return the failure of session ``number`` as other ranks reported it; None if none did.

    A rank that failed by itself comes first. A report of one that only waited for another in vain
    counts once it is `PEERS_S` seconds old.
    """
    secondary = None
    for rank, path, note in iter_failures(run, number):
        ended = GroupResult(
            note.code, note.reason, rank, {rank: note.result} if note.result else {}
        )
        if note.reason or not is_secondary_failure(ended):
            return ended
        secondary = ended if is_older(path, PEERS_S) else secondary
    return secondary


def is_secondary_failure(ended: GroupResult) -> bool:
    """Return whether the rank at fault reports only that it waited for another in vain."""
    return ended.results.get(ended.rank, {}).get("kind") == SECONDARY


def combine_results(ended: GroupResult, run: Path, number: int) -> GroupResult:
    """Return rank 0's result of a session, or the failure of another rank that explains it better.

    A failure of rank 0's own counts first. Otherwise the reports of other ranks decide, for which a
    failed rank 0 waits up to `PEERS_S` seconds. Rank 0's result stands if there is no report, and
    if both it and the reporting rank only waited for another in vain.
    """
    if (ended.code or ended.reason) and not is_secondary_failure(ended):
        return ended
    end = time.monotonic() + (PEERS_S if ended.code else 0)
    while (other := find_failed_rank(run, number)) is None and time.monotonic() < end:
        time.sleep(POLL_S)
    return ended if other is None or (is_secondary_failure(other) and ended.code) else other


def is_older(path: Path, seconds: float) -> bool:
    """Return whether a file exists and was last changed more than ``seconds`` ago."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def check_fresh(folder: Path) -> None:
    """Raise `UserError` for a folder with announcements older than this process's parent, the
    launcher; accept a folder without announcements."""
    import psutil

    with contextlib.suppress(psutil.Error):
        if is_older(folder / SESSIONS, time.time() - psutil.Process(os.getppid()).create_time()):
            raise UserError(f"{folder} is not empty; choose another --out")


def wait_for_announcement(run: Path, number: int, wait: float, start: str = "") -> Announcement:
    """Wait for an announcement and return it; print a notice if the first one, 0, takes long.

    Args:
        run: the run folder.
        number: of the session.
        wait: seconds, at most.
        start: see `ExternalLaunch`; announcements of another start are ignored.

    Raises:
        UserError: nothing was announced in time.
    """
    begin, waits = time.monotonic(), f"rank 0 announced nothing in {(run / SESSIONS).resolve()}"
    warned = number > 0  # then the folder is the right one
    while (announced := announcement_file(number).read_if_present(run)) is None or (
        announced.start != start
    ):
        passed = time.monotonic() - begin
        if passed > wait:
            raise UserError(f"{waits} for {wait:g} s; {SAME_FOLDER_HINT}")
        if passed > WORD_S and not warned:
            warned = True
            text = f"dualml: {waits} for {WORD_S:g} s, and this rank waits on; {SAME_FOLDER_HINT}"
            print(text, file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return announced
