"""Run all trials of a run, one after the other; ranks start once for all trials of one group."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.aggregation import ASYNCHRONOUS
from dualml.aggregation.times import share, split
from dualml.backend import Adopted, BackendInfo
from dualml.cores import of_each_rank, of_one_rank
from dualml.errors import UserError
from dualml.experiment.plan import Plan
from dualml.launch.adopted import at_fault, fallen
from dualml.launch.hosted import Guest, Host
from dualml.launch.hub import Hub
from dualml.launch.process import Launch
from dualml.launch.route import free_port, near
from dualml.launch.supervise import Ended, died, last_lines, supervise
from dualml.machine import python, usable_cores
from dualml.split.measured import summary
from dualml.store.folder import RunFolder
from dualml.store.manifest import Key, Status, TrialRecord
from dualml.store.sessions import Announcement, announce
from dualml.store.times import TIMELINE, TIMES
from dualml.store.trial import JOB, RESULT, Job, Result, board_path, log_path

CHECKPOINT_S = 10.0  # seconds of training between two checkpoints
VARIABLE = "DUALML_CHECKPOINT_S"  # overrides CHECKPOINT_S
Listener = Callable[[TrialRecord, dict[str, Any]], None]
#: Fields of a worker's result that are copied into ``run.json``.
COPIED = (TrialRecord.model_fields.keys() & Result.model_fields) - {
    "status",
    "reason",
    "world_size",
}


def run_trials(
    folder: RunFolder,
    plan: Plan,
    infos: Mapping[str, BackendInfo],
    environs: Mapping[str, dict[str, str]],
    listen: Listener,
    adopted: Adopted | None = None,
    hub: Hub | None = None,
) -> None:
    """Run every trial that has not ended, and record each as it ends.

    Args:
        folder: of the run.
        plan: of the run.
        infos: backend → its description.
        environs: backend → environment variables its workers need before the import.
        listen: called as ``listen(trial, event)``; ``{"phase": "end"}`` when a trial is over.
        adopted: the external launcher, where this process is the first of its ranks.
        hub: server for ranks on other machines.

    Raises:
        RankLost: a rank on another machine is gone; the current trial has failed.
        KeyboardInterrupt: after the running workers are gone; their trial stays ``interrupted``.
    """
    number = 0  # counts the sessions with several ranks
    for together in groups(folder.pending(), plan):
        waiting = list(together)
        while waiting:  # after a trial that failed the others need new ranks
            if hub is not None:
                hub.check()
            session = Session(folder, plan, infos, environs, listen, adopted, number, hub)
            done = session.run(
                waiting, left="unsupported" if waiting == together else "interrupted"
            )
            number += session.size > 1
            waiting = waiting[done:]
    if hub is not None:
        hub.check()


def groups(trials: Sequence[TrialRecord], plan: Plan) -> list[list[Key]]:
    """Group the trials whose ranks can be started once: by backend, number of ranks and other
    settings.

    Groups with few ranks come first, and short single-rank trials before long ones: the first
    verdict of a run is available when both backends have ended one arm.
    """
    arms, together = plan.experiment.arms, dict[Any, list[Key]]()

    def length(trial: TrialRecord) -> int:
        return gradients(plan, trial.arm, trial.seed) if arms[trial.arm].world_size == 1 else 0

    for number, trial in enumerate(sorted(trials, key=length)):
        arm = arms[trial.arm]
        alone = arm.world_size == 1
        group: Any = ("alone", number)
        if not alone:  # engines keep something in the process that is theirs: each has its own
            staged = arm.split is not None and arm.split.host_staged
            group = (trial.backend, arm.world_size, arm.cores, arm.launcher, arm.method, staged)
        together.setdefault(group, []).append(trial.key)
    return sorted(together.values(), key=lambda keys: arms[keys[0][0]].world_size)


def gradients(plan: Plan, arm: str, seed: int) -> int:
    """Return the number of per-sample gradients that all ranks of a trial compute."""
    its = plan.experiment.arms[arm]
    if its.kind != "train":
        return 0
    return plan.feed(its, seed).samples(plan.schedule(its, seed).updates)


def work(plan: Plan, keys: Sequence[Key]) -> dict[Key, float]:
    """Estimate the relative work of trials: the gradients, plus a constant share for what every
    trial does alike (the mean number of gradients), multiplied where ranks share cores and take
    turns."""
    own = {key: gradients(plan, key[0], key[2]) for key in keys}
    alike, cores = sum(own.values()) / max(1, len(own)) or 1, usable_cores()
    crowds = {key: max(1.0, plan.experiment.arms[key[0]].world_size / cores) for key in keys}
    return {key: crowds[key] * (alike + each) for key, each in own.items()}


@dataclass
class Session:
    """One launch of one group of ranks, for as many trials as they complete.

    Attributes:
        keys: the trials.
        trial_index: index of the current trial in ``keys``.
        began: when it started, on the clock of `time.monotonic`.
        elapsed_before: seconds it had taken in earlier launches.
    """

    folder: RunFolder
    plan: Plan
    infos: Mapping[str, BackendInfo]
    environs: Mapping[str, dict[str, str]]
    listen: Listener
    adopted: Adopted | None
    number: int
    hub: Hub | None = None
    size: int = 1
    keys: Sequence[Key] = ()
    at: int = 0
    begin: float = 0.0
    before: float = 0.0

    def run(self, keys: Sequence[Key], left: Status) -> int:
        """Run the trials; return how many of them have ended, successfully or not: at least one.

        Args:
            keys: the trials.
            status: of the trials whose ranks cannot be started.
        """
        self.keys = keys
        first, backend, _ = keys[0]
        info, arm = self.infos[backend], self.plan.experiment.arms[first]
        size = self.size = arm.world_size
        if why := self.impossible(info):
            for key in keys:
                trial = self.folder.change(key, status=left, reason=why, wall_s=0.0)
                self.folder.write()
                self.listen(trial, {"phase": "end"})
            return len(keys)
        options = self.folder.run.options
        threads = arm.cores or options.threads
        if not arm.cores and size > 1 and info.ranks == "processes" and not options.threads_asked:
            # The ranks share the cores of one rank: the same cores for one worker and for n.
            threads = max(1, threads // size)
        known = self.environs[info.name]
        environ = known if threads == options.threads else info.environ(threads)
        cores = arm.cores
        if size == 1 and not cores:
            environ = environ | of_one_rank(threads, options.busy, info.crowded)
        elif not cores and info.ranks == "processes" and not self.led:
            cores = of_each_rank(size, threads, options.busy, info.crowded)
        rendezvous = self.rendezvous(first, backend)
        for key in keys:
            self.prepare(key, threads, cores, rendezvous)
        places = [self.folder.trial_folder(key) for key in keys]
        shutil.rmtree(board_path(places[0]), ignore_errors=True)
        processes = size if info.ranks == "processes" and not self.led else 1
        if self.adopted is not None and self.led:
            names = [str(place.relative_to(self.folder.path)) for place in places]
            start = self.adopted.start
            coming = Announcement(places=names, backend=backend, threads=threads, start=start)
            announce(self.folder.path, self.number, coming)
            if self.hub is not None:
                environ = environ | near(self.hub.host)
        limits = self.plan.experiment.limits
        host = None
        launches: Sequence[Launch | Guest]
        if arm.launcher:
            launcher = info.launchers[arm.launcher]
            log = log_path(places[0], 0)
            host = Host(launcher, size, [info.name, *map(str, places)], environ, log)
            launches = host.guests()
        else:
            words = python("-m", "dualml.worker.main")
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
        self.start(0)
        try:
            ended = supervise(
                launches, self.hear, limit=limits.trial, silence=limits.silence, over=self.over
            )
            if self.led:
                ended = at_fault(ended, self.folder.path, self.number)
            if size == 1 and not ended.reason and not ended.code and ended.results:
                self.settle(ended.results[0])
            elif self.at < len(keys):
                self.fail(ended)
        finally:
            if host is not None:
                host.close()
            self.clock()
            self.folder.write()
            for place in places:
                shutil.rmtree(board_path(place), ignore_errors=True)
        return self.at

    def over(self) -> bool:
        """Whether a rank that an external launcher started has reported its failure."""
        return self.led and fallen(self.folder.path, self.number) is not None

    @property
    def led(self) -> bool:
        """Whether the other ranks are processes that somebody else has started."""
        threads = self.infos[self.keys[0][1]].ranks == "threads"
        return self.adopted is not None and self.size > 1 and not threads

    def impossible(self, info: BackendInfo) -> str | None:
        """Return why these ranks cannot be started; None where they can."""
        there, launcher = self.adopted, self.plan.experiment.arms[self.keys[0][0]].launcher
        if self.size > 1 and info.ranks == "none":
            return f"backend {info.name} has no process groups; use world_size = 1"
        if launcher and launcher not in info.launchers:
            return f"{launcher} starts no ranks of backend {info.name}"
        if launcher and there is not None:
            return (
                f"{launcher} starts the ranks of this arm itself; run it without {there.launcher}"
            )
        if launcher and (missing := info.launchers[launcher].missing()):
            return missing
        if there is None or not self.led:
            return None
        if self.size != there.size:
            return f"{there.launcher} started {there.size} ranks; this arm has {self.size}"
        if there.sessions and self.number >= there.sessions:
            return f"{there.launcher} serves its ranks once; go on with --resume"
        return None

    def prepare(self, key: Key, threads: int, cores: int, rendezvous: str) -> None:
        """Create the folder of a trial and write its job file."""
        place = self.folder.trial_folder(key)
        place.mkdir(parents=True, exist_ok=True)
        RESULT.remove(place)
        arm, backend, seed = key
        options = self.folder.run.options
        job = Job(
            arm=arm,
            backend=backend,
            seed=seed,
            device=options.device,
            threads=threads,
            cores=cores,
            rendezvous=rendezvous,
            key=str(self.number),
            check=options.check,
            plan_hash=self.plan.hash,
            checkpoint_every=checkpoint_every(),
            resized=self.size if self.folder.trials[key].resized else 0,
        )
        JOB.write(place, job)

    def rendezvous(self, arm: str, backend: str) -> str:
        """Return the rendezvous through which the ranks find one another."""
        if launcher := self.plan.experiment.arms[arm].launcher:
            return self.infos[backend].launchers[launcher].rendezvous
        if self.adopted is None:
            return self.folder.run.options.rendezvous
        if self.adopted.backend or self.hub is None or not self.led:
            return "env://"
        return f"tcp://{self.hub.host}:{free_port(self.hub.host)}"

    def start(self, at: int) -> None:
        """Make trial ``at`` the current one."""
        self.at, self.begin = at, time.monotonic()
        if at < len(self.keys):
            self.before = self.folder.trials[self.keys[at]].wall_s or 0.0
            trial = self.change(status="interrupted", reason="not finished")
            self.listen(trial, {"phase": "start"})

    def change(self, **values: Any) -> TrialRecord:
        """Change fields of the current trial's record."""
        return self.folder.change(self.keys[self.at], **values)

    def clock(self) -> None:
        """Add the seconds since its start to the current trial."""
        if self.at < len(self.keys):
            self.change(wall_s=self.before + time.monotonic() - self.begin)

    def hear(self, rank: int, event: dict[str, Any]) -> None:
        """Handle an event of a rank; only rank 0's count."""
        if self.at < len(self.keys) and rank == 0:
            if event.get("event") == "settled":
                self.settle(event)
            elif "phase" in event:
                self.listen(self.folder.trials[self.keys[self.at]], event)

    def settle(self, result: Mapping[str, Any]) -> None:
        """Record that the current trial has ended successfully, and begin the next one."""
        name, backend, _ = key = self.keys[self.at]
        arm, environment = self.plan.experiment.arms[name], result["environment"]
        values = {field: result[field] for field in COPIED if field in result}
        if arm.world_size > 1 or arm.cores:
            values["threads"] = environment.get("threads")
        if arm.world_size > 1 or arm.split is not None:
            values |= ranks_of(self.folder.trial_folder(key), self.plan, name)
            values["world_size"] = result.get("world_size", 1)
        if spent := values.get("spent"):
            taken = self.before + time.monotonic() - self.begin
            values["spent"] = {"start": max(0.0, taken - sum(spent.values())), **spent}
        self.change(status="ok", reason=None, **values)
        usual = arm.world_size == 1 and not arm.cores
        if usual or backend not in self.folder.run.environment:
            self.folder.set_environment(backend, environment)
        self.end()

    def fail(self, ended: Ended) -> None:
        """Record that the current trial has failed: which rank, why, and the end of its log."""
        result = ended.results.get(ended.rank, {})
        log = last_lines(log_path(self.folder.trial_folder(self.keys[0]), ended.rank))
        if result.get("status") not in (None, "ok") and not ended.reason:
            whose = f"rank {ended.rank}: " if self.size > 1 else ""
            self.change(status=result["status"], reason=f"{whose}{result['reason']}", log=log)
        else:
            why = ended.reason or died(ended.code)
            self.change(status="failed", reason=f"rank {ended.rank} {why}", log=log)
        self.end()

    def end(self) -> None:
        """Write the current trial's record, report its end, and begin the next one."""
        self.clock()
        self.folder.write()
        self.listen(self.folder.trials[self.keys[self.at]], {"phase": "end"})
        self.start(self.at + 1)


def checkpoint_every() -> float:
    """Return the seconds of training between two checkpoints.

    Raises:
        UserError: ``DUALML_CHECKPOINT_S`` is not a number of seconds.
    """
    asked = os.environ.get(VARIABLE, CHECKPOINT_S)
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(asked)) < math.inf:
            return seconds
    raise UserError(f"{VARIABLE} must be seconds from 0; received {asked!r}")


def ranks_of(place: Path, plan: Plan, arm: str) -> dict[str, Any]:
    """Return how each rank spent its time, from the records the ranks wrote; empty without them."""
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
    ranks = split(times, peers)
    return {"ranks": ranks, "communication_share": share(ranks)}
