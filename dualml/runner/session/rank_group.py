"""The ranks of a group of trials: what each process is started with, and what its end means."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.backend import BackendInfo, ExternalLaunch
from dualml.common.cores import affinity_env, cores_per_rank
from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.common.machine import python_argv
from dualml.experiment.arm import Arm
from dualml.experiment.plan import Plan
from dualml.experiment.store.manifest import Key, Status, TrialRecord
from dualml.experiment.store.sessions import Announcement, announce
from dualml.experiment.store.times import TIMELINE, TIMES
from dualml.experiment.store.trial import (
    JOB,
    RESULT,
    TrialJob,
    TrialResult,
    log_path,
    rendezvous_path,
)
from dualml.launch.external import combine_results, find_failed_rank
from dualml.launch.launcher import LaunchedRank, LauncherProcess
from dualml.launch.process import Launch
from dualml.launch.rank_server import RankServer
from dualml.launch.route import free_port, interface_variables
from dualml.launch.supervise import GroupResult, describe_exit, last_lines
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.parallel.aggregation.times import communication_share, split_times
from dualml.parallel.split.timeline_stats import summary
from dualml.runner.session.prepare import FrozenRun

CHECKPOINT_S = 10.0  # seconds of training between two checkpoints
VARIABLE = "DUALML_CHECKPOINT_S"  # overrides CHECKPOINT_S
Listener = Callable[[TrialRecord, dict[str, Any]], None]
#: Fields of a worker's result that are copied into ``run.json``.
COPIED = (TrialRecord.model_fields.keys() & TrialResult.model_fields) - {
    "status",
    "reason",
    "world_size",
}


@dataclass
class RankGroup:
    """A group of ranks, started once for as many trials as they complete.

    Attributes:
        number: of the group, from 0; single ranks are not counted.
        keys: the trials.
        trial_index: index of the current trial in ``keys``; their number after the last one.
        start_time: when the current trial started, on the clock of `time.monotonic`.
        elapsed_before: seconds it had taken in earlier starts.
    """

    frozen: FrozenRun
    environs: Mapping[str, dict[str, str]]
    listen: Listener
    external_launch: ExternalLaunch | None
    number: int
    keys: Sequence[Key]
    server: RankServer | None = None
    trial_index: int = 0
    start_time: float = 0.0
    elapsed_before: float = 0.0

    @property
    def arm(self) -> Arm:
        """The first trial's arm; those of the others have the same ranks."""
        return self.frozen.plan.experiment.arms[self.keys[0][0]]

    @property
    def info(self) -> BackendInfo:
        """The backend of all trials."""
        return self.frozen.infos[self.keys[0][1]]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.arm.world_size

    def refuse(self, status: Status, why: str) -> None:
        """Record that the ranks of these trials cannot be started."""
        for key in self.keys:
            trial = self.frozen.folder.change(key, status=status, reason=why, wall_s=0.0)
            self.frozen.folder.write()
            self.listen(trial, {"phase": "end"})

    @contextlib.contextmanager
    def prepare(self) -> Iterator[Sequence[Launch | LaunchedRank]]:
        """Write the job files and provide one start for each process of this machine; record the
        time of the trials and remove what the ranks left when the block is left."""
        info, arm, size = self.info, self.arm, self.size
        options = self.frozen.folder.run.options
        threads = arm.cores or options.threads
        if not arm.cores and size > 1 and info.ranks == "processes" and not options.threads_asked:
            # The ranks share the cores of one rank: the same cores for one worker and for n.
            threads = max(1, threads // size)
        known = self.environs[info.name]
        environ = known if threads == options.threads else info.environ(threads)
        cores = arm.cores
        if size == 1 and not cores:
            environ = environ | affinity_env(threads, options.busy, info.crowded)
        elif not cores and info.ranks == "processes" and not self.is_external:
            cores = cores_per_rank(size, threads, options.busy, info.crowded)
        rendezvous = self.rendezvous()
        for key in self.keys:
            self.write_job(key, threads, cores, rendezvous)
        places = [self.frozen.folder.trial_folder(key) for key in self.keys]
        shutil.rmtree(rendezvous_path(places[0]), ignore_errors=True)
        if self.external_launch is not None and self.is_external:
            environ = self.announce_trials(self.external_launch, places, environ, threads)
        host = None
        launches: Sequence[Launch | LaunchedRank]
        if arm.launcher:
            launcher, log = info.launchers[arm.launcher], log_path(places[0], 0)
            host = LauncherProcess(launcher, size, [info.name, *map(str, places)], environ, log)
            launches = host.make_ranks()
        else:
            words = python_argv("-m", "dualml.runner.worker.main")
            processes = size if info.ranks == "processes" and not self.is_external else 1
            launches = [
                Launch(
                    [*words, str(rank), *map(str, places)],
                    environ,
                    log_path(places[0], rank),
                    info.preload,
                    arm.cores,
                )
                for rank in range(processes)
            ]
        self.start_trial(0)
        try:
            yield launches
        finally:
            if host is not None:
                host.close()
            self.add_elapsed()
            self.frozen.folder.write()
            for place in places:
                shutil.rmtree(rendezvous_path(place), ignore_errors=True)

    def announce_trials(
        self,
        launch: ExternalLaunch,
        places: Sequence[Path],
        environ: dict[str, str],
        threads: int,
    ) -> dict[str, str]:
        """Announce the trials to the ranks that somebody else has started, and return the
        environment variables of this rank's process."""
        names = [str(place.relative_to(self.frozen.folder.path)) for place in places]
        coming = Announcement(
            places=names, backend=self.info.name, threads=threads, start=launch.start
        )
        announce(self.frozen.folder.path, self.number, coming)
        return environ if self.server is None else environ | interface_variables(self.server.host)

    def record_end(self, ended: GroupResult) -> None:
        """Record how the ranks ended, once they are gone: the current trial failed, or, of a single
        rank, ended well."""
        if self.is_external:
            ended = combine_results(ended, self.frozen.folder.path, self.number)
        if self.size == 1 and not ended.reason and not ended.code and ended.results:
            self.finish_trial(ended.results[0])
        elif self.trial_index < len(self.keys):
            self.fail_trial(ended)

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
        """Return the rendezvous of the ranks: the launcher's, the one of the run's options,
        ``env://``, or a free port of this machine."""
        if launcher := self.arm.launcher:
            return self.info.launchers[launcher].rendezvous
        if self.external_launch is None:
            return self.frozen.folder.run.options.rendezvous
        if self.external_launch.backend or self.server is None or not self.is_external:
            return "env://"
        return f"tcp://{self.server.host}:{free_port(self.server.host)}"

    def start_trial(self, at: int) -> None:
        """Make trial ``at`` (from 0) the current one, recorded as ``interrupted`` until it ends; do
        nothing more if there is no such trial."""
        self.trial_index, self.start_time = at, time.monotonic()
        if at < len(self.keys):
            self.elapsed_before = self.frozen.folder.trials[self.keys[at]].wall_s or 0.0
            trial = self.update_trial(status="interrupted", reason="not finished")
            self.listen(trial, {"phase": "start"})

    def update_trial(self, **values: Any) -> TrialRecord:
        """Change fields of the current trial's record, in memory, and return it."""
        return self.frozen.folder.change(self.keys[self.trial_index], **values)

    def add_elapsed(self) -> None:
        """Record the current trial's seconds so far, with those of earlier launches; do nothing
        once all trials have ended."""
        if self.trial_index < len(self.keys):
            self.update_trial(wall_s=self.elapsed_before + time.monotonic() - self.start_time)

    def on_event(self, rank: int, event: JsonObject) -> None:
        """Handle an event of a rank's process: rank 0's progress, and the end of a trial; ignore
        other ranks."""
        if self.trial_index < len(self.keys) and rank == 0:
            if event.get("event") == "settled":
                self.finish_trial(event)
            elif "phase" in event:
                self.listen(self.frozen.folder.trials[self.keys[self.trial_index]], event)

    def finish_trial(self, result: Mapping[str, Any]) -> None:
        """Record that the current trial has ended successfully, with the fields of ``result``, and
        make the next one the current one."""
        name, backend, _ = key = self.keys[self.trial_index]
        arm, environment = self.frozen.plan.experiment.arms[name], result["environment"]
        values = {field: result[field] for field in COPIED if field in result}
        if arm.world_size > 1 or arm.cores:
            values["threads"] = environment.get("threads")
        if arm.world_size > 1 or arm.split is not None:
            values |= rank_times(self.frozen.folder.trial_folder(key), self.frozen.plan, name)
            values["world_size"] = result.get("world_size", 1)
        if spent := values.get("spent"):
            taken = self.elapsed_before + time.monotonic() - self.start_time
            values["spent"] = {"start": max(0.0, taken - sum(spent.values())), **spent}
        self.update_trial(status="ok", reason=None, **values)
        usual = arm.world_size == 1 and not arm.cores
        if usual or backend not in self.frozen.folder.run.environment:
            self.frozen.folder.set_environment(backend, environment)
        self.end_trial()

    def fail_trial(self, ended: GroupResult) -> None:
        """Record that the current trial has failed, or is unsupported: which rank, why, and the end
        of its log. Make the next trial the current one, without starting its ranks."""
        result = ended.results.get(ended.rank, {})
        log = last_lines(log_path(self.frozen.folder.trial_folder(self.keys[0]), ended.rank))
        if result.get("status") not in (None, "ok") and not ended.reason:
            whose = f"rank {ended.rank}: " if self.size > 1 else ""
            self.update_trial(status=result["status"], reason=f"{whose}{result['reason']}", log=log)
        else:
            why = ended.reason or describe_exit(ended.code)
            self.update_trial(status="failed", reason=f"rank {ended.rank} {why}", log=log)
        self.end_trial()

    def end_trial(self) -> None:
        """Write the current trial's record to the run folder, report its end, and make the next one
        the current one."""
        self.add_elapsed()
        self.frozen.folder.write()
        self.listen(self.frozen.folder.trials[self.keys[self.trial_index]], {"phase": "end"})
        self.start_trial(self.trial_index + 1)


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


def rank_times(place: Path, plan: Plan, arm: str) -> dict[str, Any]:
    """Return how each rank spent its time, ``ranks``, from the records the ranks wrote, and the
    ``communication_share``; for a split model ``ranks``, and further facts of the timeline as
    ``split``. Empty if a record is missing or damaged."""
    settings, split_plan = plan.experiment.arms[arm], plan.splits.get(arm)
    n = settings.world_size
    try:
        if split_plan is not None:
            measured = summary(split_plan, TIMELINE.read_all(place, n))
            return {"ranks": measured.pop("ranks", []), "split": measured}
        times = TIMES.read_all(place, n)
    except UserError:
        return {}
    peers = None
    if settings.aggregation.strategy == "neighbour":
        peers = [sorted({(r - 1) % n, r, (r + 1) % n}) for r in range(n)]
    elif settings.aggregation.strategy == ASYNCHRONOUS:
        peers = [[r] for r in range(n)]  # nobody waits for all
    ranks = split_times(times, peers)
    return {"ranks": ranks, "communication_share": communication_share(ranks)}
