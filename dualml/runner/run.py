"""The story of a run: freeze the plan, start the ranks, train, judge, report.

The command, the Python API and jobs all call `run` with a `RunRequest`. Ranks on other machines
enter where the role is taken and where ranks are gathered; a run that is resumed enters where the
plan would be frozen; replays (`dualml.parity.finder.replays`) and the followers of a leader
(`dualml.launch.external`) enter where the ranks are started, with ranks of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from dualml.experiment.store.trial_comparison import RunVerdicts
from dualml.launch.rank_server import RankLost
from dualml.launch.supervise import start_ranks
from dualml.launch.training import train
from dualml.report.export.live import LiveTensorBoard
from dualml.runner.outcome import EXIT_DIFFERENT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, RunOutcome
from dualml.runner.request import RunRequest
from dualml.runner.session.causes import find_causes
from dualml.runner.session.notices import notices_before, print_notice, resume_command
from dualml.runner.session.prepare import FrozenRun, open_run
from dualml.runner.session.progress import make_progress_display, show_activity
from dualml.runner.session.rank_group import checkpoint_every
from dualml.runner.session.role import follow, gather_ranks, take_role
from dualml.runner.session.trial_records import Listener
from dualml.runner.session.trials import estimate_work, iterate_groups
from dualml.runner.session.verdicts import VerdictListener


def run(request: RunRequest) -> RunOutcome:
    """Run everything that a request asks for, in the role of this process.

    After an interruption nothing is judged; after the loss of a rank no further trial starts, and
    those that have ended are judged. Neither is raised: the outcome has the exit code and the
    reason.

    Raises:
        UserError: wrong input, before anything is written.
    """
    checkpoint_every()  # a wrong value is refused before anything is written
    with contextlib.ExitStack() as resources:
        role = take_role(request, resources)
        if role.follows:
            return follow(role)
        frozen = open_run(role.request, resources)
        end_message = gather_ranks(role, frozen, resources)  # what the other ranks are told
        lost = ""
        try:
            environs = measure_environs(frozen)
            with show_trials(frozen) as shown:
                for group in iterate_groups(
                    frozen, environs, shown.listen, role.launcher, role.server
                ):
                    with group.prepared_ranks() as ranks:
                        with start_ranks(ranks.processes) as started:
                            ended = train(ranks, started)
                        group.record_end(ended)
        except KeyboardInterrupt:
            return interrupt(frozen)
        except RankLost as error:
            lost = str(error)
            lose_rank(frozen, lost)
        parity = judge(frozen)
        shown.finish(frozen)
        if role.request.find and role.launcher is None:
            find_causes(
                frozen.folder, frozen.plan, environs, parity, frozen.words, quiet=frozen.quiet
            )
        report(frozen)
        outcome = conclude(frozen, parity, lost)
        end_message.append(outcome.why)
        return outcome


def measure_environs(frozen: FrozenRun) -> dict[str, dict[str, str]]:
    """Return backend → environment variables of its workers; the first time on a machine, the best
    ones are found by measurements."""
    threads = frozen.folder.run.options.threads
    with show_activity(frozen.words("run.preparing"), quiet=frozen.quiet):
        return {name: info.environ(threads) for name, info in frozen.infos.items()}


@dataclass
class TrialsDisplay:
    """The display of the trials of a run: ``listen`` is called with every event; ``live`` copies
    them to TensorBoard, if that was asked for."""

    listen: Listener
    live: LiveTensorBoard | None = None

    def finish(self, frozen: FrozenRun) -> None:
        """Write the final results to TensorBoard once the run is judged."""
        if self.live is not None:
            self.live.finish(frozen.words)


@contextlib.contextmanager
def show_trials(frozen: FrozenRun) -> Iterator[TrialsDisplay]:
    """Print the notices of a run, show the progress of its trials and verdicts as soon as they are
    known, and yield the display that must be told each event of a trial."""
    folder, words = frozen.folder, frozen.words
    pending = [trial.key for trial in folder.pending()]
    work = estimate_work(frozen.plan, pending)
    with make_progress_display(work, words, quiet=frozen.quiet) as progress:
        for line in notices_before(frozen.request, folder, words) if pending else ():
            progress.print_line(line)
        listen = VerdictListener(folder, progress, words)
        live = LiveTensorBoard(folder, listen) if frozen.request.tensorboard else None
        yield TrialsDisplay(live or listen, live)


def interrupt(frozen: FrozenRun) -> RunOutcome:
    """Write the trials' records as they are, print how to resume the run, and return the outcome of
    an interrupted run."""
    frozen.folder.write()
    print_notice(frozen.words("run.interrupted", command=resume_command(frozen.folder)))
    return RunOutcome(EXIT_INTERRUPTED, frozen.folder)


def lose_rank(frozen: FrozenRun, why: str) -> None:
    """Write the trials' records as they are, and print that a rank on another machine is gone
    (``why``) and how to resume the run."""
    frozen.folder.write()
    print_notice(frozen.words("ranks.lost", why=why, command=resume_command(frozen.folder)))


def judge(frozen: FrozenRun) -> RunVerdicts:
    """Compare the trials, write costs and verdicts into the run folder, and return the verdicts."""
    from dualml.parity.judge import judge_run, write_parity
    from dualml.runner.session.costs import write_costs

    with show_activity(frozen.words("run.judging"), quiet=frozen.quiet):
        write_costs(frozen.folder, frozen.plan)
        parity = judge_run(frozen.folder.path)
        write_parity(frozen.folder.path, parity)
    return parity


def report(frozen: FrozenRun) -> None:
    """Write the report into the run folder, if the request asks for one."""
    if frozen.request.report:
        from dualml.report import render

        with show_activity(frozen.words("run.reporting"), quiet=frozen.quiet):
            render([frozen.folder.path], lang=frozen.words.lang)


def conclude(frozen: FrozenRun, parity: RunVerdicts, lost: str) -> RunOutcome:
    """Return the outcome of a run: `EXIT_FAILED` if a trial failed or was interrupted or all are
    unsupported, else `EXIT_DIFFERENT` or `EXIT_OK` by the worst verdict.

    Args:
        frozen: the run, whose trials have ended.
        parity: its verdicts.
        lost: which rank on another machine is gone; empty if none is.
    """
    folder, why, remedy = frozen.folder, lost, ""
    statuses = {trial.status for trial in folder.trials.values()}
    if not (statuses & {"failed", "interrupted"} or statuses <= {"unsupported"}):
        different = parity.verdict == "different"
        return RunOutcome(EXIT_DIFFERENT if different else EXIT_OK, folder, parity)
    failed = [trial for trial in folder.trials.values() if trial.status == "failed"]
    if failed and not lost:
        why = failed[0].reason or ""
        told = {"why": why, "n": len(failed), "total": len(folder.trials)}
        remedy = frozen.words("run.failed", **told, command=resume_command(folder))
    return RunOutcome(EXIT_FAILED, folder, parity, why, remedy)
