"""Ranks started by an external launcher or by the user: rank 0 waits for them, the others follow
it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from dualml.backend import Adopted, backends
from dualml.errors import plain
from dualml.hosts.ssh import Started
from dualml.launch import adopted
from dualml.launch.helper import help_ranks
from dualml.launch.hub import Hub
from dualml.launch.mirror import Mirror
from dualml.launch.remote import Remote
from dualml.launch.seat import Seat, reach
from dualml.launch.wire import address_of
from dualml.session.prepare import Request, default_out
from dualml.store.folder import check_free
from dualml.words import Words

#: Seconds that a rank of a launcher waits for rank 0's announcements.
ADOPTED_WAIT_S = 7200.0
#: Seconds until all ranks on other machines must have connected.
GATHER_S = 600.0


def say(text: str) -> None:
    """Print a line to standard error, prefixed with ``dualml:``."""
    with contextlib.suppress(OSError):  # the terminal is gone
        print(f"dualml: {plain(text)}", file=sys.stderr, flush=True)


def gather(hub: Hub, words: Words, launcher: Adopted, started: Started | None) -> None:
    """Wait until all ranks have connected, and print which are missing and, if the user starts
    them, how.

    Args:
        hub: the server to which the ranks connect.
        words: messages in the user's language.
        launcher: that started this process.
        started: the processes that this process has started; None if there are none.
    """
    if not launcher.backend and started is None:
        ranks = "1" if hub.size == 2 else f"1 … {hub.size - 1}"
        say(words("ranks.waits", where=hub.address, ranks=ranks, n=hub.size))

    def missing(ranks: list[int]) -> None:
        say(words("ranks.missing", n=len(ranks), ranks=", ".join(map(str, ranks))))

    ended = (lambda: None) if started is None else started.ended
    hub.gather(GATHER_S, missing, lambda why: say(words("ranks.refused", why=why)), ended)


def assist(launcher: Adopted, request: Request, token: bytes) -> str:
    """Run as a rank other than 0: take part in what rank 0 announces.

    Returns:
        Why the run failed, as far as this rank is told; empty on success.

    Raises:
        CommunicationError: rank 0's machine is gone.
    """
    path = request.out
    if launcher.rank < 0:
        if path is not None:  # a run that goes on has announcements of its first start
            adopted.check_fresh(path)
        environ = backends()[launcher.backend].environ(request.threads or 0)
        help_ranks(launcher, path, environ, ADOPTED_WAIT_S)
        return ""
    if (request.rendezvous or "").startswith("tcp://"):
        return away(launcher, request, token)
    assert path is not None
    if not launcher.start:
        adopted.check_fresh(path)
    shared = adopted.Shared(launcher.rank, path, launcher.start, ADOPTED_WAIT_S)
    return adopted.follow(launcher.rank, shared, ADOPTED_WAIT_S)


def away(launcher: Adopted, request: Request, token: bytes) -> str:
    """Run as a rank that does not see the run folder, with a local copy of it."""
    host, port = address_of(str(request.rendezvous))
    seat = Seat(host, port, token, launcher.rank, launcher.size)
    words = Words(request.lang or "en")
    with contextlib.ExitStack() as held:
        if request.keep_local:
            copy = request.out or default_out(f"rank{launcher.rank}")
            check_free(copy)
        else:
            copy = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="dualml-")))
        wire = reach(seat, GATHER_S, lambda: say(words("ranks.awaits", where=seat)))
        copy.mkdir(parents=True, exist_ok=True)
        mirror = Mirror(Remote(seat, wire, copy), copy, request.keep_local)
        held.callback(mirror.leave)
        say(words("ranks.came", rank=seat.rank, n=seat.size, where=seat))
        return adopted.follow(launcher.rank, mirror, ADOPTED_WAIT_S)
