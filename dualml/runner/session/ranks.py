"""Ranks started by an external launcher or by the user: rank 0 waits for them, the others follow
it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from dualml.backend import ExternalLaunch, backends
from dualml.common.words import Messages
from dualml.experiment.store.folder import check_free
from dualml.launch import external
from dualml.launch.connection import parse_address
from dualml.launch.credentials import RankCredentials, connect_when_ready
from dualml.launch.helper import run_helper
from dualml.launch.hosts.ssh import RemoteProcesses
from dualml.launch.rank_server import RankServer
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.remote_client import RemoteFolderClient
from dualml.runner.request import RunRequest
from dualml.runner.session.notices import print_notice
from dualml.runner.session.prepare import default_run_folder

#: Seconds that a rank of a launcher waits for rank 0's announcements.
ADOPTED_WAIT_S = 7200.0
#: Seconds until all ranks on other machines must have connected.
GATHER_S = 600.0


def wait_for_ranks(
    hub: RankServer, words: Messages, launcher: ExternalLaunch, started: RemoteProcesses | None
) -> None:
    """Wait until all ranks have connected, and print which are missing and, if the user starts
    them, how.

    Args:
        hub: the server to which the ranks connect.
        words: messages in the user's language.
        launcher: that started this process.
        started: the processes that this process has started; None if there are none.

    Raises:
        UserError: a rank did not connect within `GATHER_S` seconds, or has ended.
    """
    if not launcher.backend and started is None:
        ranks = "1" if hub.size == 2 else f"1 … {hub.size - 1}"
        print_notice(words("ranks.waits", where=hub.address, ranks=ranks, n=hub.size))

    def report_missing(ranks: list[int]) -> None:
        print_notice(words("ranks.missing", n=len(ranks), ranks=", ".join(map(str, ranks))))

    ended = (lambda: None) if started is None else started.exit_reason
    hub.wait_for_ranks(
        GATHER_S, report_missing, lambda why: print_notice(words("ranks.refused", why=why)), ended
    )


def run_as_follower(launcher: ExternalLaunch, request: RunRequest, token: bytes) -> str:
    """Run as a rank other than 0: take part in what rank 0 announces. With a negative rank, run the
    launcher's helper instead.

    Returns:
        Why the run failed, as far as this rank is told; empty on success.

    Raises:
        CommunicationError: rank 0's machine is gone.
        UserError: rank 0 did not answer or announced nothing in time, refuses this rank, or the
            folder holds an earlier run.
    """
    path = request.out
    if launcher.rank < 0:
        if path is not None:  # a run that goes on has announcements of its first start
            external.check_fresh(path)
        environ = backends()[launcher.backend].environ(request.threads or 0)
        run_helper(launcher, path, environ, ADOPTED_WAIT_S)
        return ""
    if (request.rendezvous or "").startswith("tcp://"):
        return run_as_remote_follower(launcher, request, token)
    assert path is not None
    if not launcher.start:
        external.check_fresh(path)
    shared = external.SharedFolderClient(launcher.rank, path, launcher.start, ADOPTED_WAIT_S)
    return external.follow_leader(launcher.rank, shared, ADOPTED_WAIT_S)


def run_as_remote_follower(launcher: ExternalLaunch, request: RunRequest, token: bytes) -> str:
    """Run as a rank that does not see the run folder, with a local copy of it, until the leader
    ends; return why it ended early, or an empty text."""
    host, port = parse_address(str(request.rendezvous))
    seat = RankCredentials(host, port, token, launcher.rank, launcher.size)
    words = Messages(request.lang or "en")
    with contextlib.ExitStack() as held:
        if request.keep_local:
            copy = request.out or default_run_folder(f"rank{launcher.rank}")
            check_free(copy)
        else:
            copy = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="dualml-")))
        wire = connect_when_ready(
            seat, GATHER_S, lambda: print_notice(words("ranks.awaits", where=seat))
        )
        copy.mkdir(parents=True, exist_ok=True)
        mirror = RemoteFolderClient(RemoteRunFolder(seat, wire, copy), copy, request.keep_local)
        held.callback(mirror.leave)
        print_notice(words("ranks.came", rank=seat.rank, n=seat.size, where=seat))
        return external.follow_leader(launcher.rank, mirror, ADOPTED_WAIT_S)
