"""Execute the trials of a run folder: run, judge, report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dualml.backend import BackendInfo, ExternalLaunch, backends
from dualml.common import variables
from dualml.common.machine import default_threads
from dualml.common.words import Messages
from dualml.experiment.store.findings import FindingContent
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.trial_comparison import RunVerdicts
from dualml.launch.rank_server import RankLost, RankServer
from dualml.runner.session.prepare import RunRequest
from dualml.runner.session.ranks import print_notice

if TYPE_CHECKING:
    from dualml.experiment.plan import Plan

#: Exit codes of a run.
EXIT_INTERRUPTED, EXIT_DIFFERENT, EXIT_FAILED, EXIT_OK = 130, 3, 1, 0


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes:
        code: the exit code.
        folder: the run folder; None for a rank of a launcher that only did its part.
        parity: the verdicts, as in ``parity.json``; empty if the run was interrupted before it.
        why: why the run failed: a lost rank, or the reason of the first failed trial; empty on
            success.
        remedy: a line that says how to resume, where none has been printed yet.
    """

    code: int
    folder: RunFolder | None = None
    parity: RunVerdicts = field(default_factory=RunVerdicts)
    why: str = ""
    remedy: str = ""


def execute_trials(
    request: RunRequest,
    folder: RunFolder,
    plan: Plan,
    infos: Sequence[BackendInfo],
    launcher: ExternalLaunch | None,
    hub: RankServer | None = None,
) -> RunOutcome:
    """Run the trials that have not ended, then judge all and report, as far as ``request`` asks.

    After an interruption nothing is judged; a lost rank ends the trials only. Neither is raised:
    the outcome has the exit code and the reason.
    """
    from dualml.parity.judge import judge_run, write_parity
    from dualml.report.export.live import LiveTensorBoard
    from dualml.runner.session.costs import write_costs
    from dualml.runner.session.progress import make_progress_display, show_activity
    from dualml.runner.session.trials import Listener, estimate_work, run_trials
    from dualml.runner.session.verdicts import VerdictListener

    lang, known = request.lang or folder.run.lang, {info.name: info for info in infos}
    words, lost, quiet = Messages(lang), "", not request.progress
    live: LiveTensorBoard | None = None
    try:
        with show_activity(words("run.preparing"), quiet=quiet):
            # The first time this measures the machine.
            environs = {i.name: i.environ(folder.run.options.threads) for i in infos}
        pending = [trial.key for trial in folder.pending()]
        with make_progress_display(estimate_work(plan, pending), words, quiet=quiet) as progress:
            about = [*data_notices(folder, words), *thread_notices(request, folder, words)]
            about += resize_notices(folder, words)
            for line in about if pending else ():
                progress.print_line(line)
            listen: Listener = VerdictListener(folder, progress, words)
            if request.tensorboard:
                listen = live = LiveTensorBoard(folder, listen)
            run_trials(folder, plan, known, environs, listen, launcher, hub)
    except KeyboardInterrupt:
        folder.write()
        print_notice(words("run.interrupted", command=resume_command(folder)))
        return RunOutcome(EXIT_INTERRUPTED, folder)
    except RankLost as error:
        folder.write()
        lost = str(error)
        print_notice(words("ranks.lost", why=lost, command=resume_command(folder)))
    with show_activity(words("run.judging"), quiet=quiet):
        write_costs(folder, plan)
        parity = judge_run(folder.path)
        write_parity(folder.path, parity)
    if live is not None:
        live.finish(words)
    if request.find and launcher is None:
        find_causes(folder, plan, environs, parity, words, quiet=quiet)
    if request.report:
        from dualml.report import render

        with show_activity(words("run.reporting"), quiet=quiet):
            render([folder.path], lang=lang)
    statuses = {trial.status for trial in folder.trials.values()}
    if statuses & {"failed", "interrupted"} or statuses <= {"unsupported"}:
        why, remedy = lost, ""
        failed = [trial for trial in folder.trials.values() if trial.status == "failed"]
        if failed and not lost:
            why, n = failed[0].reason or "", len(folder.trials)
            told = {"why": why, "n": len(failed), "total": n}
            remedy = words("run.failed", **told, command=resume_command(folder))
        return RunOutcome(EXIT_FAILED, folder, parity, why, remedy)
    return RunOutcome(EXIT_DIFFERENT if parity.verdict == "different" else EXIT_OK, folder, parity)


def resume_command(folder: RunFolder) -> str:
    """Return the command line that resumes a run or, if this process belongs to a job, the job."""
    job = os.environ.get(variables.JOB)
    return f"dualml resume {job}" if job else f"dualml run --resume {folder.path}"


def data_notices(folder: RunFolder, words: Messages) -> list[str]:
    """Return notices about the dataset: its size, a replacement, and what is adapted because it is
    small."""
    from dualml.experiment.small_data import small_data_values

    data, lang = folder.run.data, words.lang
    lines = [words("run.data", name=data.name, train=data.train, test=data.test)]
    if data.notice:
        lines.append(data.notice if isinstance(data.notice, str) else data.notice[lang])
    few = small_data_values(folder.run.experiment, {"name": data.name, "train": data.train})
    return [*lines, words("notice.small", **few)] if few else lines


def thread_notices(request: RunRequest, folder: RunFolder, words: Messages) -> list[str]:
    """Return a list with a notice if other processes leave fewer threads than the machine could
    offer; empty otherwise, for a resumed run, and where the user chose the threads."""
    threads, most = folder.run.options.threads, default_threads()
    if request.resume or request.threads or threads >= most:
        return []
    return [words("run.beside", threads=threads, most=most)]


def resize_notices(folder: RunFolder, words: Messages) -> list[str]:
    """Return notices of the trials that resume with another number of ranks."""
    changes = [(trial, trial.resized[-1].describe()) for trial in folder.pending() if trial.resized]
    return [
        words("run.resized", arm=trial.arm, seed=trial.seed, backend=trial.backend, **told)
        for trial, told in changes
    ]


def find_causes(
    folder: RunFolder,
    plan: Plan,
    environs: dict[str, dict[str, str]],
    verdicts: RunVerdicts,
    words: Messages,
    *,
    quiet: bool = False,
    most: int = 3,
) -> list[FindingContent]:
    """Find where and why backends differ or fail, if any do, write it to ``findings.json`` and
    return it; an empty list if there is nothing to explain.

    Args:
        environs: backend → variables of its workers; those of further backends are added.
        most: maximum number of differences to explain.
    """
    from dualml.experiment.store.findings import write_findings
    from dualml.parity.finder.find import find_all, is_suspicious
    from dualml.parity.finder.paragraph import add_text
    from dualml.parity.finder.replays import ReplaySession

    parity = verdicts.describe()
    judged = [*parity["comparisons"], *parity.get("serial", ())]
    trials = folder.trials.values()
    failed = any(trial.status == "failed" for trial in trials)
    if not failed and not any(is_suspicious(c) for c in judged):
        write_findings(folder.path, [])
        return []
    from dualml.runner.session.progress import show_activity

    known = backends()
    for name in ("numpy", *(trial.backend for trial in trials)):
        if name in known and name not in environs and known[name].installed():
            environs[name] = known[name].environ(folder.run.options.threads)
    with show_activity(words("run.finding"), quiet=quiet) as update:
        session = ReplaySession(
            folder=folder,
            plan=plan,
            infos=known,
            environs=environs,
            progress=lambda text: update(words("run.finding_at", what=text)),
        )
        differences = find_all(session, parity, most)
    write_findings(folder.path, [add_text(finding) for finding in differences])
    return differences
