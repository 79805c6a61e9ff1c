"""Run lab 1 on the device, on the CPU and on the reference: one plan, one verdict per pair."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from dualml.common.errors import TrialError
from dualml.common.json_types import JsonObject
from dualml.common.machine import python_argv, run_bounded
from dualml.experiment.store.envelope import Envelope
from dualml.experiment.store.manifest import RUN, read_run
from dualml.experiment.store.plan import PLAN, plan_folder
from dualml.experiment.store.trajectory import Trajectory, read_trajectory
from dualml.experiment.store.trial import trial_folder
from dualml.interface.bench.section import AddRow, BenchJob
from dualml.parity.pairs import compare_trajectories

#: Backend name of the reference.
REFERENCE = "numpy"
ARMS = ("gd", "sgd", "adam")
#: Options of a quick run: the least work that gives a verdict.
QUICK_OPTIONS = ("--set", "arms.sgd.updates=10", "--set", "data.train=256", "--set", "data.test=64")


class LabRun:
    """The finished run of one backend on one device, read from its folder; ``name`` is how tables
    call it."""

    def __init__(self, folder: Path, backend: str, device: str) -> None:
        self.folder, self.backend = folder, backend
        self.name = backend if backend == REFERENCE else f"{backend} ({device})"
        self.run = read_run(folder)

    def trajectory(self, arm: str) -> Trajectory:
        """Return the recorded trajectory of an arm with its first seed.

        Raises:
            TrialError: the trial failed or is missing.
        """
        plan = PLAN.read(plan_folder(self.folder))
        key = (arm, self.backend, self.run.to_experiment(self.folder).seeds_of(arm)[0])
        trial = self.run.by_key().get(key)
        if trial is None or trial.status != "ok":
            why = f"{trial.status}: {trial.reason}" if trial else "not run"
            raise TrialError(f"{self.name}, {arm}: {why}")
        where = trial_folder(self.folder, key)
        return read_trajectory(where, self.backend, plan.model.tensors())


def arms_for(job: BenchJob) -> Sequence[str]:
    """Return the arms to run: ``sgd`` alone in a quick run, else `ARMS`."""
    return ("sgd",) if job.quick else ARMS


def run_lab(
    job: BenchJob,
    backend: str,
    device: str,
    name: str = "",
    environ: Mapping[str, str] | None = None,
) -> LabRun:
    """Run lab 1 in its quick form on the embedded digits, in a separate process; a run that its
    folder already holds is read instead.

    Args:
        name: name of the run folder; by default from backend and device.
        environ: further environment variables of the run.

    Raises:
        TrialError: the run exceeded the time limit or wrote no ``run.json``; failed trials raise
            nothing.
    """
    folder = Path(job.folder) / (name or f"lab-{backend}-{device.replace(':', '')}")
    if (folder / RUN.name).exists():
        return LabRun(folder, backend, device)
    words = [word for arm in arms_for(job) for word in ("--arm", arm)]
    command = python_argv(
        "-m",
        "dualml",
        "run",
        "lab1",
        "--quick",
        "--data",
        "digits",
        "--backend",
        backend,
        "--device",
        device,
        "--out",
        str(folder),
        "--threads",
        str(job.threads),
        "--no-report",
        "--no-find",
        *words,
        *(QUICK_OPTIONS if job.quick else ()),
    )
    ended = run_bounded(command, job.seconds, {**os.environ, **(environ or {})})
    if ended.code is None:
        raise TrialError(f"dualml run on {device} took longer than {job.seconds:.0f} s")
    if not (folder / RUN.name).exists():
        lines = ended.err.strip().splitlines() or [f"it ended with code {ended.code}"]
        raise TrialError(f"dualml run on {device}: {lines[-1]}")
    return LabRun(folder, backend, device)


def compare_trials(
    a: LabRun, b: LabRun, arm: str, envelopes: list[Envelope] | None = None
) -> JsonObject:
    """Compare one arm of two runs by `dualml.parity.pairs.compare_trajectories`; return the cells
    of a table row: pair, verdict, largest distance in envelopes, both test accuracies, and the
    first divergence, if any.

    Args:
        a, b: the runs, with one plan.
        arm: name of the arm; its first seed is compared.
        envelopes: rounding envelopes that count; None for those of the two trials.

    Raises:
        TrialError: a trial failed or is missing, or the runs have different plans.
    """
    if a.run.plan_hash != b.run.plan_hash:
        raise TrialError(f"{a.name} and {b.name} ran different plans: there is nothing to compare")
    margin = a.run.to_experiment(a.folder).parity.margin
    judged = compare_trajectories(a.trajectory(arm), b.trajectory(arm), margin, envelopes)
    first = judged.first_divergence
    return {
        "pair": [a.name, b.name],
        "verdict": judged.verdict,
        "envelopes": judged.ratio,
        "accuracies": judged.outcome.get("test_accuracy"),
        **({"reason": {"key": "divergence", **first}} if first else {}),
    }


def section(job: BenchJob, add: AddRow) -> None:
    """Run lab 1 on the device, on the CPU and on the reference, and call ``add`` with a row per arm
    and pair of runs, and one with the reason for each run or pair that failed."""
    devices = dict.fromkeys(((job.backend, job.device), (job.backend, "cpu"), (REFERENCE, "cpu")))
    together = len(devices) if job.threads >= 2 * len(devices) else 1
    job = replace(job, threads=max(1, job.threads // together))
    ran = []
    with ThreadPoolExecutor(together) as pool:
        waiting = {place: pool.submit(run_lab, job, *place) for place in devices}
    for (backend, device), run in waiting.items():
        try:
            ran.append(run.result())
        except TrialError as error:
            add(pair=[backend, device], reason=str(error), ok=False)
    for arm in arms_for(job):
        for a, b in combinations(ran, 2):
            try:
                cells = compare_trials(a, b, arm)
                add(arm=arm, **cells, ok=cells["verdict"] == "equal")
            except TrialError as error:
                add(arm=arm, pair=[a.name, b.name], reason=str(error), ok=False)
