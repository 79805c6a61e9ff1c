"""Run a whole experiment, whoever has started its ranks."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from dualml.backend import ExternalLaunch, select_backends
from dualml.common.errors import CommunicationError, UserError
from dualml.common.variables import CONFIG, NO_FILE
from dualml.common.words import Messages
from dualml.experiment.store.folder import lock_run_folder
from dualml.experiment.store.manifest import RUN, read_run
from dualml.experiment.store.sessions import announce_end, clear_sessions
from dualml.experiment.store.trial import HOSTS
from dualml.launch import external
from dualml.launch.child import on_death_of_parent
from dualml.launch.connection import TOKEN, parse_address, token_for
from dualml.launch.credentials import versions
from dualml.launch.hosts.file import read_hosts as read_hosts
from dualml.launch.hosts.ssh import RemoteProcesses, start_remote
from dualml.launch.hosts.ssh import survey_hosts as check_hosts
from dualml.launch.rank_server import RankServer
from dualml.runner.session.execution import EXIT_FAILED, EXIT_OK, RunOutcome, execute_trials
from dualml.runner.session.prepare import (
    RunRequest,
    check_request,
    prepare_run,
    refuse_settings,
    resume_run,
)
from dualml.runner.session.ranks import print_notice, run_as_follower, wait_for_ranks

#: Starts the other ranks for the duration of a context; their output goes into the given folder.
StartRanks = Callable[[Path], contextlib.AbstractContextManager[RemoteProcesses]]


def run_request(request: RunRequest) -> RunOutcome:
    """Run everything that a request asks for, in the role of this process.

    Raises:
        UserError: wrong input, before anything is written.
    """
    from dualml.runner.session.trials import checkpoint_every

    check_request(request)
    checkpoint_every()
    if request.hosts is not None:
        return run_on_hosts(request, request.hosts)
    launcher = external.detect_external_launch() or external.manual_launch(
        request.rank, request.world_size, request.rendezvous
    )
    if launcher is not None:
        return run_external_rank(launcher, request)
    if (request.rendezvous or "").startswith("env:"):
        raise UserError(
            "--rendezvous env:// is for ranks that torchrun or msrun starts; leave it out"
        )
    for option in ("insecure", "keep_local"):
        if getattr(request, option):
            name = option.replace("_", "-")
            raise UserError(f"--{name} is for ranks on other machines: see --rank")
    return run_as_leader(request, None, None)


def run_external_rank(launcher: ExternalLaunch, request: RunRequest) -> RunOutcome:
    """Run the part of a rank that an external launcher, or the user, has started: rank 0 leads the
    run, the others follow, and their outcome has no run folder. `UserError` for options that do
    not fit the launcher."""
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
        try:
            why = run_as_follower(launcher, request, token)
        except CommunicationError as error:
            why = str(error)
        words = Messages(request.lang or "en")
        if why:
            print_notice(words("ranks.over", why=why))
        elif not launcher.backend:  # in a terminal of its own
            print_notice(words("ranks.done"))
        return RunOutcome(EXIT_FAILED if why else EXIT_OK)
    if request.resume:
        request = replace(request, world_size=None, rendezvous=None)
    else:
        backend = launcher.backend or request.backend
        request = replace(request, world_size=launcher.size, backend=backend)
    if not over_wire:
        return run_as_leader(request, launcher, None)
    with contextlib.closing(RankServer(host, port, token, launcher.size)) as hub:
        return run_as_leader(request, launcher, hub)


def run_on_hosts(request: RunRequest, path: Path) -> RunOutcome:
    """Run rank 0 here, and the other ranks on this and, over ssh, other machines, as the file
    ``path`` says; `UserError` if it is wrong or a machine cannot take part."""
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
    with contextlib.closing(
        RankServer(here.address, here.port or 0, token.encode(), hosts.size)
    ) as hub:
        check_hosts(hosts, (hub.host, hub.port), versions(infos), request.device or "")
        words = ["run", "--world-size", str(hosts.size), "--rendezvous", hub.address]
        environ = {TOKEN: token, CONFIG: NO_FILE}  # the configuration was resolved here
        others = partial(start_remote, hosts, words=words, environ=environ)
        if not request.resume:
            request = replace(request, world_size=hosts.size)
        return run_as_leader(request, launcher, hub, others)


def restart_request(request: RunRequest, launcher: ExternalLaunch) -> RunRequest:
    """Return a request that resumes the run, where the launcher starts its ranks once more;
    otherwise the request unchanged."""
    path = request.out
    if not launcher.start or request.resume or path is None or not (path / RUN.name).exists():
        return request
    return RunRequest(
        lab=None,
        resume=path,
        out=path if launcher.rank else None,
        lang=request.lang,
        report=request.report,
        find=request.find,
        rendezvous=request.rendezvous,
        insecure=request.insecure,
        keep_local=request.keep_local,
        tensorboard=request.tensorboard,
    )


def run_as_leader(
    request: RunRequest,
    launcher: ExternalLaunch | None,
    hub: RankServer | None,
    others: StartRanks | None = None,
) -> RunOutcome:
    """Run as rank 0, or as the only process: prepare, train, judge and report.

    Args:
        request: from the user.
        launcher: that started this process; None if there is none.
        hub: server for ranks on other machines; None if there are none.
        others: starts the other ranks; what they print goes into the given folder.
    """
    with contextlib.ExitStack() as held:
        if request.resume:
            refuse_settings(request)
            read_run(request.resume)  # nothing is written into a folder that is not a run folder
            held.enter_context(lock_run_folder(request.resume))
            folder, plan, infos = resume_run(request)
            clear_sessions(folder.path)
        else:
            folder, plan, infos = prepare_run(request)
            held.enter_context(lock_run_folder(folder.path))
        group, why = None, list[str]()
        if others is not None:
            group = held.enter_context(others(folder.path / HOSTS))
        if launcher is not None:
            path, start = folder.path, launcher.start
            held.callback(lambda: announce_end(path, start, *why))
        if hub is not None and launcher is not None:
            words = Messages(request.lang or folder.run.lang)
            same = versions(info for info in infos if info.ranks == "processes")
            hub.open(folder.path, same)
            wait_for_ranks(hub, words, launcher, group)
        done = execute_trials(request, folder, plan, infos, launcher, hub)
        why.append(done.why)
        return done
