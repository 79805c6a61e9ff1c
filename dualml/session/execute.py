"""A whole run: freeze the plan, run the trials, judge, report."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dualml.backend import Adopted, BackendInfo, backends
from dualml.errors import CommunicationError, UserError
from dualml.launch import adopted
from dualml.launch.child import on_death_of_parent
from dualml.launch.hub import Hub, Lost
from dualml.launch.mirror import own
from dualml.launch.wire import address_of, token_for
from dualml.machine import default_threads
from dualml.session.prepare import Request, prepare, refuse_settings, resume
from dualml.session.ranks import assist, gather, say
from dualml.store.folder import RunFolder, in_use
from dualml.store.manifest import RUN, read_run
from dualml.store.sessions import announce_end, forget
from dualml.words import Words

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan

INTERRUPTED, DIFFERENT, FAILED, WELL = 130, 3, 1, 0


@dataclass(frozen=True)
class Done:
    """How a run ended.

    Attributes:
        code: the exit code.
        folder: None for a rank of a launcher that only did its part.
        parity: the content of ``parity.json``; empty where it was interrupted before.
    """

    code: int
    folder: RunFolder | None = None
    parity: Mapping[str, Any] = field(default_factory=dict)


def execute(request: Request) -> Done:
    """Run the whole of it.

    Raises:
        UserError: wrong input, before anything is written.
    """
    from dualml.session.trials import checkpoint_every

    checkpoint_every()
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
    """What a rank does that somebody else has started."""
    if launcher.backend:
        on_death_of_parent(signal.SIGTERM)  # a launcher that is killed takes nobody with it
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
            assist(launcher, request, token)
        except CommunicationError as error:
            say(str(error))
            return Done(FAILED)
        return Done(WELL)
    if request.resume:
        request = replace(request, world_size=None, rendezvous=None)
    else:
        backend = launcher.backend or request.backend
        request = replace(request, world_size=launcher.size, backend=backend)
    if not over_wire:
        return lead(request, launcher, None)
    with contextlib.closing(Hub(host, port, token, launcher.size)) as hub:
        return lead(request, launcher, hub)


def again(request: Request, launcher: Adopted) -> Request:
    """What is asked for where the launcher starts its ranks once more: go on with the run."""
    path = request.out
    if not launcher.start or request.resume or path is None or not (path / RUN.name).exists():
        return request
    return Request(
        lab=None, resume=path, out=path if launcher.rank else None, lang=request.lang,
        report=request.report, find=request.find, rendezvous=request.rendezvous,
        insecure=request.insecure, keep_local=request.keep_local,
    )  # fmt: skip


def lead(request: Request, launcher: Adopted | None, hub: Hub | None) -> Done:
    """What rank 0 does, or the only process: everything."""
    with contextlib.ExitStack() as held:
        if request.resume:
            refuse_settings(request)
            read_run(request.resume)  # nothing is written into a folder that is none of ours
            held.enter_context(in_use(request.resume))
            folder, plan, infos = resume(request)
            forget(folder.path)
        else:
            folder, plan, infos = prepare(request)
            held.enter_context(in_use(folder.path))
        if launcher is not None:
            held.callback(announce_end, folder.path, launcher.start)
        if hub is not None:
            words = Words(request.lang or folder.run.lang)
            same = own(info for info in infos if info.ranks == "processes")
            hub.open(folder.path, same)
            gather(hub, words, by_hand=launcher is not None and not launcher.backend)
        return perform(request, folder, plan, infos, launcher, hub)


def perform(
    request: Request,
    folder: RunFolder,
    plan: Plan,
    infos: Sequence[BackendInfo],
    launcher: Adopted | None,
    hub: Hub | None = None,
) -> Done:
    """Run the trials that have not ended, judge and report."""
    from dualml.parity.judge import judge, worst, write
    from dualml.session.costs import write_costs
    from dualml.session.progress import shown, working
    from dualml.session.trials import run_trials, work
    from dualml.session.verdicts import Judging

    lang, known = request.lang or folder.run.lang, {info.name: info for info in infos}
    words = Words(lang)
    try:
        with working(words("run.preparing")):
            # The first time this measures the machine.
            environs = {i.name: i.environ(folder.run.options.threads) for i in infos}
        pending = [trial.key for trial in folder.pending()]
        with shown(work(plan, pending), words) as progress:
            about = [*about_data(folder, words), *about_threads(request, folder, words)]
            for line in about if pending else ():
                progress.say(line)
            judging = Judging(folder, progress, words)
            run_trials(folder, plan, known, environs, judging, launcher, hub)
    except KeyboardInterrupt:
        folder.write()
        say(words("run.interrupted", folder=folder.path))
        return Done(INTERRUPTED, folder)
    except Lost as error:
        folder.write()
        say(words("ranks.lost", why=str(error), folder=folder.path))
    with working(words("run.judging")):
        write_costs(folder, plan)
        parity = judge(folder.path)
        write(folder.path, parity)
    if request.find and launcher is None:
        search(folder, plan, environs, parity, words)
    if request.report:
        from dualml.report import render

        with working(words("run.reporting")):
            render([folder.path], lang=lang)
    statuses = {trial.status for trial in folder.trials.values()}
    if statuses & {"failed", "interrupted"} or statuses <= {"unsupported"}:
        return Done(FAILED, folder, parity)
    return Done(DIFFERENT if worst(parity) == "different" else WELL, folder, parity)


def about_data(folder: RunFolder, words: Words) -> list[str]:
    """Which data the run has, and what it does because they are others or few."""
    from dualml.experiment.small import shortage

    data, lang = folder.run.data, words.lang
    lines = [words("run.data", name=data.name, train=data.train, test=data.test)]
    if data.notice:
        lines.append(data.notice if isinstance(data.notice, str) else data.notice[lang])
    few = shortage(folder.run.experiment, {"name": data.name, "train": data.train})
    return [*lines, words("notice.small", **few)] if few else lines


def about_threads(request: Request, folder: RunFolder, words: Words) -> list[str]:
    """That other processes leave fewer threads than there could be."""
    threads, most = folder.run.options.threads, default_threads()
    if request.resume or request.threads or threads >= most:
        return []
    return [words("run.beside", threads=threads, most=most)]


def search(
    folder: RunFolder,
    plan: Plan,
    environs: dict[str, Any],
    parity: dict[str, Any],
    words: Words,
    *,
    quiet: bool = False,
    most: int = 3,
) -> list[dict[str, Any]]:
    """Where and why backends differ, if any do: into ``findings.json``."""
    from dualml.finder.find import findings, suspicious
    from dualml.finder.paragraph import with_text
    from dualml.finder.replays import Session
    from dualml.store.findings import write_findings

    judged = [*parity["comparisons"], *parity.get("serial", ())]
    trials = folder.trials.values()
    failed = any(trial.status == "failed" for trial in trials)
    if not failed and not any(suspicious(c) for c in judged):
        write_findings(folder.path, [])
        return []
    from dualml.session.progress import working

    known = backends()
    for name in ("numpy", *(trial.backend for trial in trials)):
        if name in known and name not in environs and known[name].installed():
            environs[name] = known[name].environ(folder.run.options.threads)
    with working(words("run.finding"), quiet=quiet) as update:
        session = Session(
            folder=folder, plan=plan, infos=known, environs=environs,
            progress=lambda text: update(words("run.finding_at", what=text)),
        )  # fmt: skip
        differences = findings(session, parity, most)
    write_findings(folder.path, [with_text(finding) for finding in differences])
    return differences
