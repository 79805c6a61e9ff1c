"""All trials of a run: one after the other, those of one group of ranks together."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dualml.aggregation import ASYNCHRONOUS
from dualml.aggregation.times import read_times, share, split
from dualml.backend import BackendInfo
from dualml.errors import UserError
from dualml.experiment.plan import Plan
from dualml.files import write_json
from dualml.launch.adopted import Adopted, announce, at_fault, fallen
from dualml.launch.supervise import Ended, Launch, died, last_lines, supervise
from dualml.runner.folder import RunFolder
from dualml.split.measured import read_ranks, summary

CHECKPOINT_S = 10.0  # of training between two checkpoints
Listener = Callable[[dict[str, Any], dict[str, Any]], None]
Trial = dict[str, Any]
COPIED = (
    "train_s",
    "compile_s",
    "final_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "test_perplexity",
    "updates",
    "sample_gradients",
    "peak_memory_mb",
    "class_accuracy",
    "samples_sha256",
    "how",
    "staleness",
    "measurements",
    "memory",
)


def run_trials(
    folder: RunFolder,
    plan: Plan,
    infos: Mapping[str, BackendInfo],
    environs: Mapping[str, dict[str, str]],
    listen: Listener,
    adopted: Adopted | None = None,
) -> None:
    """Run every trial that has not ended, recording each as it ends.

    Args:
        environs: backend → environment variables its workers need before the import.
        listen: called as ``listen(trial, event)``; ``{"phase": "end"}`` when a trial is over.
        adopted: where a launcher has started the ranks, and this process is the first of them.

    Raises:
        KeyboardInterrupt: after the running workers are gone; their trial stays ``interrupted``.
    """
    number = 0  # of the sessions with several ranks
    for together in groups(folder.pending(), plan):
        waiting = list(together)
        while waiting:  # after a trial that failed the others need new ranks
            session = Session(folder, plan, infos, environs, listen, adopted, number)
            done = session.run(waiting)
            number += session.size > 1
            waiting = waiting[done:]


def groups(trials: list[Trial], plan: Plan) -> list[list[Trial]]:
    """Trials with several ranks, by backend and number: their ranks start once for all of them."""
    found: dict[Any, list[Trial]] = {}
    for number, trial in enumerate(trials):
        arm = plan.experiment.arms[trial["arm"]]
        alone = arm.world_size == 1
        key = ("alone", number) if alone else (trial["backend"], arm.world_size, arm.cores)
        found.setdefault(key, []).append(trial)
    return list(found.values())


class Session:
    """One start of one group of ranks, for as many trials as they get through."""

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        infos: Mapping[str, BackendInfo],
        environs: Mapping[str, dict[str, str]],
        listen: Listener,
        adopted: Adopted | None,
        number: int,
    ) -> None:
        self.adopted, self.number, self.size = adopted, number, 1
        self.folder, self.plan, self.infos = folder, plan, infos
        self.environs, self.listen = environs, listen
        self.trials: list[Trial] = []
        self.at, self.begin, self.before = 0, 0.0, 0.0

    def run(self, trials: list[Trial]) -> int:
        """How many of the trials have ended, well or not: at least one."""
        self.trials = trials
        options = dict(self.folder.run["options"])
        info = self.infos[trials[0]["backend"]]
        size = self.size = self.plan.experiment.arms[trials[0]["arm"]].world_size
        if why := self.impossible(info):
            for trial in trials:
                trial.update(status="unsupported", reason=why, wall_s=0.0)
                self.folder.write()
                self.listen(trial, {"phase": "end"})
            return len(trials)
        environ = self.environs[info.name]
        if cores := self.plan.experiment.arms[trials[0]["arm"]].cores:
            options |= {"threads": cores, "cores": cores}
            environ = info.environ(cores)
        elif size > 1 and info.ranks == "processes" and not options.get("threads_asked"):
            # The ranks share what one rank would have: the same cores for one worker and for n.
            options["threads"] = max(1, options["threads"] // size)
            environ = info.environ(options["threads"])
        for trial in trials:
            self.prepare(trial, options)
        places = [self.folder.trial_folder(t) for t in trials]
        shutil.rmtree(places[0] / "board", ignore_errors=True)
        processes = size if info.ranks == "processes" and self.adopted is None else 1
        if self.adopted is not None and size > 1:
            announce(self.folder.path, self.number, places)
        words = [sys.executable, "-m", "dualml.runner.worker"]
        launches = [
            Launch(
                [*words, str(rank), *map(str, places)],
                environ,
                places[0] / f"rank{rank}.log",
            )
            for rank in range(processes)
        ]
        limits = self.plan.experiment.limits
        self.start(0)
        try:
            ended = supervise(
                launches, self.hear, limit=limits.trial, silence=limits.silence, over=self.over
            )
            if self.adopted is not None and size > 1:
                ended = at_fault(ended, self.folder.path, self.number)
            if size == 1 and not ended.reason and not ended.code and ended.results:
                self.settle(ended.results[0])
            elif self.at < len(trials):
                self.fail(ended)
        finally:
            self.clock()
            self.folder.write()
            for place in places:
                shutil.rmtree(place / "board", ignore_errors=True)
        return self.at

    def over(self) -> bool:
        """Whether a rank that a launcher started has told of its end."""
        if self.adopted is None or self.size == 1:
            return False
        return fallen(self.folder.path, self.number) is not None

    def impossible(self, info: BackendInfo) -> str | None:
        """Why these ranks cannot be started; None where they can."""
        there = self.adopted
        if self.size > 1 and info.ranks == "none":
            return f"backend {info.name} has no process groups; use world_size = 1"
        if there is None or self.size == 1:
            return None
        if self.size != there.size:
            return f"{there.launcher} started {there.size} ranks; this arm has {self.size}"
        if there.sessions and self.number >= there.sessions:
            return f"{there.launcher} serves its ranks once; run this arm by itself"
        return None

    def prepare(self, trial: Trial, options: Mapping[str, Any]) -> None:
        place = self.folder.trial_folder(trial)
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.json").unlink(missing_ok=True)
        every = float(os.environ.get("DUALML_CHECKPOINT_S", CHECKPOINT_S))
        job = {key: trial[key] for key in ("arm", "backend", "seed")} | {
            "device": options["device"],
            "threads": options["threads"],
            "cores": options.get("cores", 0),
            "rendezvous": "env://" if self.adopted else options.get("rendezvous", "auto"),
            "key": str(self.number),
            "check": options.get("check", False),
            "plan_hash": self.plan.hash,
            "checkpoint_every": every,
        }
        write_json(place / "job.json", job)

    def start(self, at: int) -> None:
        """Trial ``at`` is at work now."""
        self.at, self.begin = at, time.monotonic()
        if at < len(self.trials):
            trial = self.trials[at]
            self.before = trial["wall_s"] or 0.0
            trial.update(status="interrupted", reason="not finished")
            self.listen(trial, {"phase": "start"})

    def clock(self) -> None:
        """Add the seconds since its start to the trial at work."""
        if self.at < len(self.trials):
            now = time.monotonic()
            self.trials[self.at]["wall_s"] = self.before + now - self.begin

    def hear(self, rank: int, event: dict[str, Any]) -> None:
        if self.at < len(self.trials) and rank == 0:
            if event.get("event") == "settled":
                self.settle(event)
            elif "phase" in event:
                self.listen(self.trials[self.at], event)

    def settle(self, result: Mapping[str, Any]) -> None:
        """The trial at work has ended well; the next one begins."""
        trial = self.trials[self.at]
        trial.update(status="ok", reason=None)
        trial.update({key: result[key] for key in COPIED if key in result})
        arm = self.plan.experiment.arms[trial["arm"]]
        size, cores = arm.world_size, arm.cores
        if size > 1 or cores:
            trial["threads"] = result["environment"].get("threads")
        if size > 1:
            trial["world_size"] = size
            trial.update(ranks_of(self.folder.trial_folder(trial), self.plan, trial))
        usual = size == 1 and not cores
        if usual or trial["backend"] not in self.folder.run["environment"]:
            self.folder.run["environment"][trial["backend"]] = result["environment"]
        self.end()

    def fail(self, ended: Ended) -> None:
        """The trial at work has failed: which rank, why, and the end of its log."""
        trial, told = self.trials[self.at], ended.results.get(ended.rank, {})
        log = last_lines(self.folder.trial_folder(self.trials[0]) / f"rank{ended.rank}.log")
        several = self.plan.experiment.arms[trial["arm"]].world_size > 1
        if told.get("status") not in (None, "ok") and not ended.reason:
            reason = f"rank {ended.rank}: {told['reason']}" if several else told["reason"]
            trial.update(status=told["status"], reason=reason, log=log)
        else:
            how = ended.reason or died(ended.code)
            trial.update(status="failed", reason=f"rank {ended.rank} {how}", log=log)
        self.end()

    def end(self) -> None:
        self.clock()
        trial = self.trials[self.at]
        self.folder.write()
        self.listen(trial, {"phase": "end"})
        self.start(self.at + 1)


def ranks_of(place: Path, plan: Plan, trial: Trial) -> dict[str, Any]:
    """Where each rank's time went, from the times they left; empty without them."""
    arm = plan.experiment.arms[trial["arm"]]
    if trial["arm"] in plan.splits:
        return split_of(place, plan, trial)
    n = arm.world_size
    try:
        times = [read_times(place / f"rank{rank}.times.npz") for rank in range(n)]
    except UserError:
        return {}
    peers = None
    if arm.aggregation.strategy == "neighbour":
        peers = [sorted({(r - 1) % n, r, (r + 1) % n}) for r in range(n)]
    elif arm.aggregation.strategy == ASYNCHRONOUS:
        peers = [[r] for r in range(n)]  # nobody waits for all
    told = split(times, peers)
    return {"ranks": told, "communication_share": share(told)}


def split_of(place: Path, plan: Plan, trial: Trial) -> dict[str, Any]:
    """What the timelines of ranks that share a model say; empty without them."""
    split_plan = plan.splits[trial["arm"]]
    try:
        told = summary(split_plan, read_ranks(place, split_plan.world_size))
    except UserError:
        return {}
    ranks = told.pop("ranks", [])
    return {"ranks": ranks, "split": told}
