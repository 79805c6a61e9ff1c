"""The ranks of a training: what they are started with, and the steps that every training takes.

Trials of a run, replays of single updates and the ranks of other machines enter here: their
processes are described by `TrainingRanks`, started by `dualml.launch.supervise.start_ranks`, and
watched by `train` until all have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.backend import BackendInfo
from dualml.common.cores import affinity_env, cores_per_rank
from dualml.common.json_types import JsonObject
from dualml.common.machine import python_argv
from dualml.experiment.arm import Arm
from dualml.experiment.store.manifest import Options
from dualml.experiment.store.trial import log_path
from dualml.launch.launcher import LaunchedRank
from dualml.launch.process import Launch
from dualml.launch.supervise import GroupResult, StartedRanks, start_ranks, watch_ranks

#: Programs of a rank: ``python -m PROGRAM RANK FOLDER…``, with a job file in each folder. The first
#: runs the trials of its folders, the second a replay.
TRIALS, REPLAY = "dualml.runner.worker.main", "dualml.runner.worker.replay_main"


@dataclass(frozen=True)
class CoreShare:
    """The part of this machine that each rank of an arm gets.

    Attributes:
        threads: compute threads.
        cores: logical cores to pin the rank to; 0 for no pinning.
        environ: environment variables of its process.
    """

    threads: int
    cores: int
    environ: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TrainingRanks:
    """The processes of a group of ranks, and how they are watched.

    Attributes:
        processes: what to start, by rank.
        limit: seconds that one training may take.
        silence: seconds that a rank may go without an event.
        on_event: called as ``on_event(rank, event)`` with each event of a rank but its result and
            its pulses.
        is_abandoned: whether nobody needs the ranks any more; then they are ended.
    """

    processes: Sequence[Launch | LaunchedRank]
    limit: float
    silence: float
    on_event: Callable[[int, JsonObject], None] = lambda rank, event: None
    is_abandoned: Callable[[], bool] = lambda: False


def share_cores(
    arm: Arm,
    info: BackendInfo,
    options: Options,
    environ: Mapping[str, str],
    *,
    is_external: bool = False,
) -> CoreShare:
    """Divide the cores of this machine among the ranks of an arm.

    Args:
        arm: its number of ranks and its own number of cores, if it has one.
        info: the backend.
        options: of the run: the threads of one rank, and how busy each core was.
        environ: variables of the backend's processes for that many threads.
        is_external: whether somebody else has started the other ranks; then none is pinned, unless
            the arm has its own number of cores.
    """
    several = arm.world_size > 1 and info.ranks == "processes"
    threads = arm.cores or options.threads
    if several and not arm.cores and not options.threads_asked:
        # The ranks share the cores of one rank: the same cores for one worker and for n.
        threads = max(1, threads // arm.world_size)
    if threads != options.threads:
        environ = info.environ(threads)
    cores = arm.cores
    if arm.world_size == 1 and not cores:
        environ = {**environ, **affinity_env(threads, options.busy, info.crowded)}
    elif several and not cores and not is_external:
        cores = cores_per_rank(arm.world_size, threads, options.busy, info.crowded)
    return CoreShare(threads, cores, environ)


def describe_process(
    program: str,
    rank: int,
    folders: Sequence[Path],
    environ: Mapping[str, str],
    *,
    preload: Sequence[str] = (),
    cores: int = 0,
) -> Launch:
    """Return what to start for one rank; its log is in the first folder.

    Args:
        program: `TRIALS` or `REPLAY`.
        rank: its number.
        folders: of its jobs.
        environ, preload, cores: see `Launch`.
    """
    command = python_argv("-m", program, str(rank), *map(str, folders))
    return Launch(command, environ, log_path(folders[0], rank), preload, cores)


def train(ranks: TrainingRanks, started: StartedRanks) -> GroupResult:
    """Watch the ranks while they train (`dualml.runner.worker`), and return how they ended.

    Args:
        ranks: the group.
        started: its processes, from `start_ranks`.
    """
    return watch_ranks(
        started,
        ranks.on_event,
        limit=ranks.limit,
        silence=ranks.silence,
        is_abandoned=ranks.is_abandoned,
    )


def start_and_train(ranks: TrainingRanks) -> GroupResult:
    """Start the ranks, watch them while they train, and return how they ended; all processes are
    gone then.

    Raises:
        KeyboardInterrupt: after all processes and their children are gone.
    """
    with start_ranks(ranks.processes) as started:
        return train(ranks, started)
