"""The role of this process in a run: alone, rank 0 of several, or a rank that follows it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dualml.backend import ExternalLaunch, select_backends
from dualml.common.errors import CommunicationError, UserError
from dualml.common.variables import CONFIG, NO_FILE
from dualml.common.words import Messages
from dualml.experiment.store.manifest import RUN, read_run
from dualml.experiment.store.sessions import announce_end
from dualml.experiment.store.trial import HOSTS
from dualml.launch import external
from dualml.launch.child import on_death_of_parent
from dualml.launch.connection import TOKEN, parse_address, token_for
from dualml.launch.credentials import versions
from dualml.launch.hosts.file import read_hosts
from dualml.launch.hosts.ssh import RemoteProcesses, start_remote, survey_hosts
from dualml.launch.rank_server import RankServer
from dualml.runner.outcome import EXIT_FAILED, EXIT_OK, RunOutcome
from dualml.runner.request import RunRequest
from dualml.runner.session.notices import print_notice
from dualml.runner.session.prepare import FrozenRun
from dualml.runner.session.ranks import run_as_follower, wait_for_ranks

#: Starts the other ranks for the duration of a context; their output goes into the given folder.
StartRanks = Callable[[Path], contextlib.AbstractContextManager[RemoteProcesses]]


@dataclass(frozen=True)
class Role:
    """The role of this process.

    Attributes:
        request: the run as this process is to take part in it.
        launcher: that started the ranks; None where this process starts them all.
        server: for ranks on other machines.
        start_others: starts the ranks on other machines.
        token: with which the ranks authenticate one another; empty on one machine.
    """

    request: RunRequest
    launcher: ExternalLaunch | None = None
    server: RankServer | None = None
    start_others: StartRanks | None = None
    token: bytes = b""

    @property
    def follows(self) -> bool:
        """Whether another process leads the run."""
        return self.launcher is not None and self.launcher.rank != 0


def take_role(request: RunRequest, held: contextlib.ExitStack) -> Role:
    """Determine the role of this process from the request and the environment. A server for ranks
    on other machines is open for as long as ``held``.

    Raises:
        UserError: options that do not fit the role, or a machine that cannot take part.
    """
    if request.hosts is not None:
        return lead_hosts(request, request.hosts, held)
    launcher = external.detect_external_launch() or external.manual_launch(
        request.rank, request.world_size, request.rendezvous
    )
    if launcher is not None:
        return take_launched_role(request, launcher, held)
    if (request.rendezvous or "").startswith("env:"):
        raise UserError(
            "--rendezvous env:// is for ranks that torchrun or msrun starts; leave it out"
        )
    for option in ("insecure", "keep_local"):
        if getattr(request, option):
            name = option.replace("_", "-")
            raise UserError(f"--{name} is for ranks on other machines: see --rank")
    return Role(request)


def take_launched_role(
    request: RunRequest, launcher: ExternalLaunch, held: contextlib.ExitStack
) -> Role:
    """Determine the role of a rank that an external launcher, or the user, has started; raise
    `UserError` for options that do not fit the launcher."""
    if launcher.backend:
        on_death_of_parent(signal.SIGTERM)  # a launcher that is killed does not end its ranks
        request = restart_request(request, launcher)
    over_wire = (request.rendezvous or "").startswith("tcp://")
    if request.resume and not over_wire and not launcher.start:
        name = launcher.launcher
        raise UserError(
            f"--resume under {name} needs --rendezvous tcp://HOST:PORT; without {name} dualml "
            "starts the ranks itself"
        )
    out = request.out or request.resume
    external.check_launch_options(
        launcher, out, request.world_size, request.backend, request.rendezvous
    )
    host, port = parse_address(str(request.rendezvous)) if over_wire else ("", 0)
    token = token_for(host, request.insecure) if over_wire else b""
    if launcher.rank != 0:
        return Role(request, launcher, token=token)
    if request.resume:
        request = request.with_values(world_size=None, rendezvous=None)
    else:
        backend = launcher.backend or request.backend
        request = request.with_values(world_size=launcher.size, backend=backend)
    server = None
    if over_wire:
        server = held.enter_context(
            contextlib.closing(RankServer(host, port, token, launcher.size))
        )
    return Role(request, launcher, server, token=token)


def lead_hosts(request: RunRequest, path: Path, held: contextlib.ExitStack) -> Role:
    """Return the role of rank 0, where this process starts the other ranks on this and, over ssh,
    other machines, as the file ``path`` says; raise `UserError` if it is wrong or a machine cannot
    take part. The machines are asked here, and the ranks started later (`gather_ranks`)."""
    hosts = read_hosts(path)
    for option in ("rank", "world-size", "rendezvous", "insecure", "keep-local"):
        if getattr(request, option.replace("-", "_")) not in (None, False):
            raise UserError(f"--hosts {path} says who takes part; leave out --{option}")
    if (there := external.detect_external_launch()) is not None:
        raise UserError(f"--hosts starts the ranks itself; run it without {there.launcher}")
    token = os.environ.get(TOKEN) or secrets.token_hex(16)
    trials = read_run(request.resume).trials if request.resume else None
    names = ",".join({trial.backend for trial in trials}) if trials else request.backend
    infos = [info for info in select_backends(names) if info.ranks == "processes"]
    launcher = ExternalLaunch("--hosts", "", 0, hosts.size)
    here = hosts.here
    server = held.enter_context(
        contextlib.closing(RankServer(here.address, here.port or 0, token.encode(), hosts.size))
    )
    survey_hosts(hosts, (server.host, server.port), versions(infos), request.device or "")
    words = ["run", "--world-size", str(hosts.size), "--rendezvous", server.address]
    environ = {TOKEN: token, CONFIG: NO_FILE}  # the configuration was resolved here
    others = partial(start_remote, hosts, words=words, environ=environ)
    if not request.resume:
        request = request.with_values(world_size=hosts.size)
    return Role(request, launcher, server, others, token.encode())


def restart_request(request: RunRequest, launcher: ExternalLaunch) -> RunRequest:
    """Return a request that resumes the run in ``request.out``, if the launcher has started its
    ranks again and that folder has a run; otherwise the request unchanged."""
    path = request.out
    if not launcher.start or request.resume or path is None or not (path / RUN.name).exists():
        return request
    return request.to_resume(path, out=path if launcher.rank else None)


def follow(role: Role) -> RunOutcome:
    """Take part in the run that another process leads; the outcome has no run folder."""
    assert role.launcher is not None
    try:
        why = run_as_follower(role.launcher, role.request, role.token)
    except CommunicationError as error:
        why = str(error)
    words = Messages(role.request.lang or "en")
    if why:
        print_notice(words("ranks.over", why=why))
    elif not role.launcher.backend:  # in a terminal of its own
        print_notice(words("ranks.done"))
    return RunOutcome(EXIT_FAILED if why else EXIT_OK)


def gather_ranks(role: Role, frozen: FrozenRun, held: contextlib.ExitStack) -> list[str]:
    """Start the ranks on other machines, if there are any, and wait until all have come; they are
    told of the end of the run when ``held`` is closed.

    Returns:
        A list whose text, if the caller appends one, tells them why the run failed.
    """
    launcher, path, why = role.launcher, frozen.folder.path, list[str]()
    started = None
    if role.start_others is not None:
        started = held.enter_context(role.start_others(path / HOSTS))
    if launcher is not None:
        start = launcher.start
        held.callback(lambda: announce_end(path, start, *why))
    if role.server is not None and launcher is not None:
        same = versions(info for info in frozen.infos.values() if info.ranks == "processes")
        role.server.open(path, same)
        wait_for_ranks(role.server, frozen.words, launcher, started)
    return why
