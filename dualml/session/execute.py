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

from dualml.backend import Adopted, choose
from dualml.errors import CommunicationError, UserError
from dualml.hosts.file import read as read_hosts
from dualml.hosts.ssh import Started, started
from dualml.hosts.ssh import check as check_hosts
from dualml.launch import adopted
from dualml.launch.child import on_death_of_parent
from dualml.launch.hub import Hub
from dualml.launch.seat import versions
from dualml.launch.wire import TOKEN, address_of, token_for
from dualml.session.perform import FAILED, WELL, Done, perform
from dualml.session.prepare import Request, check, prepare, refuse_settings, resume
from dualml.session.ranks import assist, gather, say
from dualml.store.folder import in_use
from dualml.store.manifest import RUN, read_run
from dualml.store.sessions import announce_end, forget
from dualml.store.trial import HOSTS
from dualml.variables import CONFIG, NO_FILE
from dualml.words import Words

#: Starts the other ranks for the duration of a context; their output goes into the given folder.
Others = Callable[[Path], contextlib.AbstractContextManager[Started]]


def execute(request: Request) -> Done:
    """Run everything that a request asks for, in the role of this process.

    Raises:
        UserError: wrong input, before anything is written.
    """
    from dualml.session.trials import checkpoint_every

    check(request)
    checkpoint_every()
    if request.hosts is not None:
        return on_hosts(request, request.hosts)
    launcher = adopted.adopted() or adopted.by_hand(
        request.rank, request.world_size, request.rendezvous
    )
    if launcher is not None:
        return one_of(launcher, request)
    if (request.rendezvous or "").startswith("env:"):
        raise UserError(
            "--rendezvous env:// is for ranks that torchrun or msrun starts; leave it out"
        )
    for option in ("insecure", "keep_local"):
        if getattr(request, option):
            name = option.replace("_", "-")
            raise UserError(f"--{name} is for ranks on other machines: see --rank")
    return lead(request, None, None)


def one_of(launcher: Adopted, request: Request) -> Done:
    """Run the part of a rank that an external launcher, or the user, has started."""
    if launcher.backend:
        on_death_of_parent(signal.SIGTERM)  # a launcher that is killed does not end its ranks
        request = again(request, launcher)
    over_wire = (request.rendezvous or "").startswith("tcp://")
    if request.resume and not over_wire and not launcher.start:
        name = launcher.launcher
        raise UserError(
            f"--resume under {name} needs --rendezvous tcp://HOST:PORT; without {name} dualml "
            "starts the ranks itself"
        )
    out = request.out or request.resume
    adopted.check(launcher, out, request.world_size, request.backend, request.rendezvous)
    host, port = address_of(str(request.rendezvous)) if over_wire else ("", 0)
    token = token_for(host, request.insecure) if over_wire else b""
    if launcher.rank != 0:
        try:
            why = assist(launcher, request, token)
        except CommunicationError as error:
            why = str(error)
        words = Words(request.lang or "en")
        if why:
            say(words("ranks.over", why=why))
        elif not launcher.backend:  # in a terminal of its own
            say(words("ranks.done"))
        return Done(FAILED if why else WELL)
    if request.resume:
        request = replace(request, world_size=None, rendezvous=None)
    else:
        backend = launcher.backend or request.backend
        request = replace(request, world_size=launcher.size, backend=backend)
    if not over_wire:
        return lead(request, launcher, None)
    with contextlib.closing(Hub(host, port, token, launcher.size)) as hub:
        return lead(request, launcher, hub)


def on_hosts(request: Request, path: Path) -> Done:
    """Run rank 0 here and the other ranks over ssh on the machines of a file."""
    hosts = read_hosts(path)
    for option in ("rank", "world-size", "rendezvous", "insecure", "keep-local"):
        if getattr(request, option.replace("-", "_")) not in (None, False):
            raise UserError(f"--hosts {path} says who takes part; leave out --{option}")
    if (there := adopted.adopted()) is not None:
        raise UserError(f"--hosts starts the ranks itself; run it without {there.launcher}")
    token = os.environ.get(TOKEN) or secrets.token_hex(16)
    trials = read_run(request.resume).trials if request.resume else None
    names = ",".join({trial.backend for trial in trials}) if trials else request.backend
    infos = [info for info in choose(names) if info.ranks == "processes"]
    launcher = Adopted("--hosts", "", 0, hosts.size)
    here = hosts.here
    with contextlib.closing(Hub(here.address, here.port or 0, token.encode(), hosts.size)) as hub:
        check_hosts(hosts, (hub.host, hub.port), versions(infos), request.device or "")
        words = ["run", "--world-size", str(hosts.size), "--rendezvous", hub.address]
        environ = {TOKEN: token, CONFIG: NO_FILE}  # the configuration was resolved here
        others = partial(started, hosts, words=words, environ=environ)
        if not request.resume:
            request = replace(request, world_size=hosts.size)
        return lead(request, launcher, hub, others)


def again(request: Request, launcher: Adopted) -> Request:
    """Return a request that resumes the run, where the launcher starts its ranks once more;
    otherwise the request unchanged."""
    path = request.out
    if not launcher.start or request.resume or path is None or not (path / RUN.name).exists():
        return request
    return Request(
        lab=None, resume=path, out=path if launcher.rank else None, lang=request.lang,
        report=request.report, find=request.find, rendezvous=request.rendezvous,
        insecure=request.insecure, keep_local=request.keep_local,
        tensorboard=request.tensorboard,
    )  # fmt: skip


def lead(
    request: Request, launcher: Adopted | None, hub: Hub | None, others: Others | None = None
) -> Done:
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
            held.enter_context(in_use(request.resume))
            folder, plan, infos = resume(request)
            forget(folder.path)
        else:
            folder, plan, infos = prepare(request)
            held.enter_context(in_use(folder.path))
        group, why = None, list[str]()
        if others is not None:
            group = held.enter_context(others(folder.path / HOSTS))
        if launcher is not None:
            path, start = folder.path, launcher.start
            held.callback(lambda: announce_end(path, start, *why))
        if hub is not None and launcher is not None:
            words = Words(request.lang or folder.run.lang)
            same = versions(info for info in infos if info.ranks == "processes")
            hub.open(folder.path, same)
            gather(hub, words, launcher, group)
        done = perform(request, folder, plan, infos, launcher, hub)
        why.append(done.why)
        return done
