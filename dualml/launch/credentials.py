"""Address of rank 0's machine, identity of this rank, and how it introduces itself."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from dualml.backend import BackendInfo, backends
from dualml.common.errors import CommunicationError, UserError, escape_unprintable
from dualml.common.version import __version__
from dualml.launch.connection import TOKEN, Connection, Mismatch, connect, describe_error

#: Variable that tells workers rank 0's address, their rank and the number of ranks.
HUB = "DUALML_HUB"
#: Seconds between two attempts to connect to rank 0.
AGAIN_S = 0.5


def versions(infos: Iterable[BackendInfo]) -> dict[str, str]:
    """Return the versions of dualml and the frameworks by name, which must be the same on all
    machines of a run; without local parts such as ``+cpu``, and without missing frameworks."""
    found = {"dualml": __version__}
    for info in infos:
        with contextlib.suppress(PackageNotFoundError):
            found[info.framework] = version(info.framework).partition("+")[0]
    return found


@dataclass
class RankCredentials:
    """Address of rank 0's machine, the token of the run, and this rank and the number of ranks."""

    host: str
    port: int
    token: bytes
    rank: int
    size: int

    def connect(self, worker: bool, limit: float) -> Connection:
        """Connect to rank 0 and introduce this rank, or its worker.

        Args:
            worker: whether this process is the one that computes, not the one that supervises it.
            limit: seconds for connecting.

        Raises:
            CommunicationError: nobody answers, or something that has another token or version
                (`Mismatch`) or is not dualml; or the connection ended.
            UserError: this rank does not fit that run; the text says what differs.
        """
        wire = connect(self.host, self.port, self.token, limit)
        known = versions(backends().values())
        try:
            answer, _ = wire.ask(
                {
                    "rank": self.rank,
                    "size": self.size,
                    "host": socket.gethostname(),
                    "worker": worker,
                    "same": known,
                    "clock": time.time(),
                }
            )
        except (OSError, ValueError) as error:
            raise CommunicationError(f"rank 0 at {self} is gone: {describe_error(error)}") from None
        if "refused" in answer:
            wire.close()
            raise UserError(
                f"refused by rank 0 at {self}: {escape_unprintable(str(answer['refused']))}"
            )
        return wire

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def variables(self) -> dict[str, str]:
        """Return the variables from which a worker makes the same credentials, except the token,
        which it inherits."""
        return {HUB: f"{self.host} {self.port} {self.rank} {self.size}"}


def worker_credentials() -> RankCredentials | None:
    """Read the credentials from the environment variable `HUB`; None where it is not set, as for a
    rank that sees the run folder."""
    if not (text := os.environ.get(HUB)):
        return None
    host, port, rank, size = text.split()
    return RankCredentials(
        host, int(port), os.environ.get(TOKEN, "").encode(), int(rank), int(size)
    )


def connect_when_ready(
    credentials: RankCredentials, seconds: float, waiting: Callable[[], None]
) -> Connection:
    """Connect to rank 0 and introduce this rank, retrying until rank 0 answers.

    Args:
        credentials: of this rank.
        seconds: to wait, at most.
        waiting: called once if rank 0 does not answer at first.

    Raises:
        UserError: it did not answer within ``seconds``, or refuses this rank; at once if it has
            another token or protocol.
    """
    end, told = time.monotonic() + seconds, False
    while True:
        try:
            return credentials.connect(worker=False, limit=max(1.0, end - time.monotonic()))
        except CommunicationError as error:
            if isinstance(error, Mismatch) or time.monotonic() > end:
                raise UserError(f"{error}; start rank 0 there, or see --rendezvous") from None
        if not told:
            waiting()
            told = True
        time.sleep(AGAIN_S)
