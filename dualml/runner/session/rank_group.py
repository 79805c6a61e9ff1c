"""The ranks of a group of trials: what each process is started with, and what its end means."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.backend import BackendInfo, ExternalLaunch
from dualml.common.errors import UserError
from dualml.experiment.arm import Arm
from dualml.experiment.store.manifest import Key
from dualml.experiment.store.sessions import Announcement, announce
from dualml.experiment.store.trial import JOB, RESULT, TrialJob, log_path, rendezvous_path
from dualml.launch.external import combine_results, find_failed_rank
from dualml.launch.launcher import LaunchedRank, LauncherProcess
from dualml.launch.process import Launch
from dualml.launch.rank_server import RankServer
from dualml.launch.route import free_port, interface_variables
from dualml.launch.supervise import GroupResult
from dualml.launch.training import TRIALS, TrainingRanks, describe_process, share_cores
from dualml.runner.session.prepare import FrozenRun
from dualml.runner.session.trial_records import TrialRecords

CHECKPOINT_S = 10.0  # seconds of training between two checkpoints
VARIABLE = "DUALML_CHECKPOINT_S"  # overrides CHECKPOINT_S


@dataclass(frozen=True)
class RankGroup:
    """A group of ranks, started once for as many trials as they complete.

    Attributes:
        frozen: the run.
        environs: backend → environment variables of its processes.
        records: the trials.
        number: of the group, from 0; single ranks are not counted.
        external_launch: the external launcher, where this process is the first of its ranks.
        server: for ranks on other machines.
    """

    frozen: FrozenRun
    environs: Mapping[str, dict[str, str]]
    records: TrialRecords
    number: int
    external_launch: ExternalLaunch | None = None
    server: RankServer | None = None

    @property
    def arm(self) -> Arm:
        """The first trial's arm; those of the others have the same ranks."""
        return self.frozen.plan.experiment.arms[self.records.keys[0][0]]

    @property
    def info(self) -> BackendInfo:
        """The backend of all trials."""
        return self.frozen.infos[self.records.keys[0][1]]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.arm.world_size

    @contextlib.contextmanager
    def prepared_ranks(self) -> Iterator[TrainingRanks]:
        """Write the trials' job files, and yield the ranks of this machine, which the caller
        starts; when the block is left, record the time of the current trial and remove the files
        through which the ranks met."""
        info, arm, folder = self.info, self.arm, self.frozen.folder
        share = share_cores(
            arm, info, folder.run.options, self.environs[info.name], is_external=self.is_external
        )
        environ, rendezvous = share.environ, self.rendezvous()
        for key in self.records.keys:
            self.write_job(key, share.threads, share.cores, rendezvous)
        places = [folder.trial_folder(key) for key in self.records.keys]
        shutil.rmtree(rendezvous_path(places[0]), ignore_errors=True)
        if self.external_launch is not None and self.is_external:
            self.announce_trials(self.external_launch, places, share.threads)
            if self.server is not None:
                environ = {**environ, **interface_variables(self.server.host)}
        host = None
        processes: Sequence[Launch | LaunchedRank]
        if arm.launcher:
            launcher, log = info.launchers[arm.launcher], log_path(places[0], 0)
            words = [info.name, *map(str, places)]
            host = LauncherProcess(launcher, self.size, words, environ, log)
            processes = host.make_ranks()
        else:
            count = self.size if info.ranks == "processes" and not self.is_external else 1
            processes = [
                describe_process(
                    TRIALS, rank, places, environ, preload=info.preload, cores=arm.cores
                )
                for rank in range(count)
            ]
        limits = self.frozen.plan.experiment.limits
        self.records.start_trial(0)
        try:
            yield TrainingRanks(
                processes=processes,
                limit=limits.trial,
                silence=limits.silence,
                on_event=self.records.on_event,
                is_abandoned=self.external_failed,
            )
        finally:
            if host is not None:
                host.close()
            self.records.add_elapsed()
            folder.write()
            for place in places:
                shutil.rmtree(rendezvous_path(place), ignore_errors=True)

    def announce_trials(self, launch: ExternalLaunch, places: Sequence[Path], threads: int) -> None:
        """Announce trials, with their folders ``places`` and the ``threads`` of each rank, to the
        ranks that an external launcher or the user has started."""
        names = [str(place.relative_to(self.frozen.folder.path)) for place in places]
        coming = Announcement(
            places=names, backend=self.info.name, threads=threads, start=launch.start
        )
        announce(self.frozen.folder.path, self.number, coming)

    def record_end(self, ended: GroupResult) -> None:
        """Record in the run folder how the ranks ended, once they are gone; where a rank that
        somebody else has started reported a failure that explains the end better, that one is
        recorded."""
        if self.is_external:
            ended = combine_results(ended, self.frozen.folder.path, self.number)
        self.records.record_end(ended)

    def external_failed(self) -> bool:
        """Return whether a rank that an external launcher started has reported its failure; False
        where this process starts the ranks."""
        return (
            self.is_external and find_failed_rank(self.frozen.folder.path, self.number) is not None
        )

    @property
    def is_external(self) -> bool:
        """Whether the other ranks are processes that somebody else has started."""
        threads = self.info.ranks == "threads"
        return self.external_launch is not None and self.size > 1 and not threads

    def unsupported_reason(self) -> str | None:
        """Return why these ranks cannot be started; None where they can."""
        there, launcher, info = self.external_launch, self.arm.launcher, self.info
        if self.size > 1 and info.ranks == "none":
            return f"backend {info.name} has no process groups; use world_size = 1"
        if launcher and launcher not in info.launchers:
            return f"{launcher} starts no ranks of backend {info.name}"
        if launcher and there is not None:
            return (
                f"{launcher} starts the ranks of this arm itself; run it without {there.launcher}"
            )
        if launcher and (missing := info.launchers[launcher].missing_reason()):
            return missing
        if there is None or not self.is_external:
            return None
        if self.size != there.size:
            return f"{there.launcher} started {there.size} ranks; this arm has {self.size}"
        if there.sessions and self.number >= there.sessions:
            return f"{there.launcher} serves its ranks once; go on with --resume"
        return None

    def write_job(self, key: Key, threads: int, cores: int, rendezvous: str) -> None:
        """Create the folder of a trial, remove an earlier result from it, and write its job
        file."""
        place = self.frozen.folder.trial_folder(key)
        place.mkdir(parents=True, exist_ok=True)
        RESULT.remove(place)
        arm, backend, seed = key
        options = self.frozen.folder.run.options
        job = TrialJob(
            arm=arm,
            backend=backend,
            seed=seed,
            device=options.device,
            threads=threads,
            cores=cores,
            rendezvous=rendezvous,
            key=str(self.number),
            check=options.check,
            plan_hash=self.frozen.plan.hash,
            checkpoint_every=checkpoint_every(),
            resized=self.size if self.frozen.folder.trials[key].resized else 0,
        )
        JOB.write(place, job)

    def rendezvous(self) -> str:
        """Return the address at which the ranks form their process group: that of the arm's
        launcher; the one of the run's options where this process starts all ranks; a free port of
        this machine for ranks on other machines, unless torchrun or msrun started them; else
        ``env://``."""
        if launcher := self.arm.launcher:
            return self.info.launchers[launcher].rendezvous
        if self.external_launch is None:
            return self.frozen.folder.run.options.rendezvous
        if self.external_launch.backend or self.server is None or not self.is_external:
            return "env://"
        return f"tcp://{self.server.host}:{free_port(self.server.host)}"


def checkpoint_every() -> float:
    """Return the seconds of training between two checkpoints: ``DUALML_CHECKPOINT_S`` if set, else
    `CHECKPOINT_S`.

    Raises:
        UserError: ``DUALML_CHECKPOINT_S`` is not a number of seconds.
    """
    asked = os.environ.get(VARIABLE, CHECKPOINT_S)
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(asked)) < math.inf:
            return seconds
    raise UserError(f"{VARIABLE} must be seconds from 0; received {asked!r}")
