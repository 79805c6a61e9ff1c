"""Execute the trials of a run folder: run, judge, report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dualml import variables
from dualml.backend import Adopted, BackendInfo, backends
from dualml.launch.hub import Hub, Lost
from dualml.machine import default_threads
from dualml.session.prepare import Request
from dualml.session.ranks import say
from dualml.store.folder import RunFolder
from dualml.words import Words

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan

#: Exit codes of a run.
INTERRUPTED, DIFFERENT, FAILED, WELL = 130, 3, 1, 0


@dataclass(frozen=True)
class Done:
    """The outcome of a run.

    Attributes:
        code: the exit code.
        folder: the run folder; None for a rank of a launcher that only did its part.
        parity: the content of ``parity.json``; empty if the run was interrupted before it.
        why: why the run failed: a lost rank, or the reason of the first failed trial; empty on
            success.
        remedy: a line that says how to resume, where none has been printed yet.
    """

    code: int
    folder: RunFolder | None = None
    parity: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    remedy: str = ""


def perform(
    request: Request,
    folder: RunFolder,
    plan: Plan,
    infos: Sequence[BackendInfo],
    launcher: Adopted | None,
    hub: Hub | None = None,
) -> Done:
    """Run the trials that have not ended, then judge and report."""
    from dualml.export.live import Live
    from dualml.parity.judge import judge, worst, write
    from dualml.session.costs import write_costs
    from dualml.session.progress import shown, working
    from dualml.session.trials import Listener, run_trials, work
    from dualml.session.verdicts import Judging

    lang, known = request.lang or folder.run.lang, {info.name: info for info in infos}
    words, lost, quiet = Words(lang), "", not request.progress
    live: Live | None = None
    try:
        with working(words("run.preparing"), quiet=quiet):
            # The first time this measures the machine.
            environs = {i.name: i.environ(folder.run.options.threads) for i in infos}
        pending = [trial.key for trial in folder.pending()]
        with shown(work(plan, pending), words, quiet=quiet) as progress:
            about = [*about_data(folder, words), *about_threads(request, folder, words)]
            about += about_ranks(folder, words)
            for line in about if pending else ():
                progress.say(line)
            listen: Listener = Judging(folder, progress, words)
            if request.tensorboard:
                listen = live = Live(folder, listen)
            run_trials(folder, plan, known, environs, listen, launcher, hub)
    except KeyboardInterrupt:
        folder.write()
        say(words("run.interrupted", command=resuming(folder)))
        return Done(INTERRUPTED, folder)
    except Lost as error:
        folder.write()
        lost = str(error)
        say(words("ranks.lost", why=lost, command=resuming(folder)))
    with working(words("run.judging"), quiet=quiet):
        write_costs(folder, plan)
        parity = judge(folder.path)
        write(folder.path, parity)
    if live is not None:
        live.finish(words)
    if request.find and launcher is None:
        search(folder, plan, environs, parity, words, quiet=quiet)
    if request.report:
        from dualml.report import render

        with working(words("run.reporting"), quiet=quiet):
            render([folder.path], lang=lang)
    statuses = {trial.status for trial in folder.trials.values()}
    if statuses & {"failed", "interrupted"} or statuses <= {"unsupported"}:
        why, remedy = lost, ""
        failed = [trial for trial in folder.trials.values() if trial.status == "failed"]
        if failed and not lost:
            why, n = failed[0].reason or "", len(folder.trials)
            told = {"why": why, "n": len(failed), "total": n}
            remedy = words("run.failed", **told, command=resuming(folder))
        return Done(FAILED, folder, parity, why, remedy)
    return Done(DIFFERENT if worst(parity) == "different" else WELL, folder, parity)


def resuming(folder: RunFolder) -> str:
    """Return the command that resumes a run, or the job to which it belongs."""
    job = os.environ.get(variables.JOB)
    return f"dualml resume {job}" if job else f"dualml run --resume {folder.path}"


def about_data(folder: RunFolder, words: Words) -> list[str]:
    """Return notices about the dataset: its size, a replacement, and what is adapted because it is
    small."""
    from dualml.experiment.small import shortage

    data, lang = folder.run.data, words.lang
    lines = [words("run.data", name=data.name, train=data.train, test=data.test)]
    if data.notice:
        lines.append(data.notice if isinstance(data.notice, str) else data.notice[lang])
    few = shortage(folder.run.experiment, {"name": data.name, "train": data.train})
    return [*lines, words("notice.small", **few)] if few else lines


def about_threads(request: Request, folder: RunFolder, words: Words) -> list[str]:
    """Return a notice if other processes leave fewer threads than the machine could offer."""
    threads, most = folder.run.options.threads, default_threads()
    if request.resume or request.threads or threads >= most:
        return []
    return [words("run.beside", threads=threads, most=most)]


def about_ranks(folder: RunFolder, words: Words) -> list[str]:
    """Return notices of the trials that resume with another number of ranks."""
    changes = [(trial, trial.resized[-1].describe()) for trial in folder.pending() if trial.resized]
    return [
        words("run.resized", arm=trial.arm, seed=trial.seed, backend=trial.backend, **told)
        for trial, told in changes
    ]


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
    """Find where and why backends differ, if any do, and write it to ``findings.json``."""
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
