"""The work of one process: one framework in one environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from power.settings import FRAMEWORKS, HORIZONS, MARGIN, UPDATES, Record
from power.trials import compared, usual, usual_and_envelopes, usual_folder


def work(job: Record) -> list[Record]:
    """Run all tasks of a job and return the rows."""
    from dualml.backend import backends
    from dualml.experiment.store.plan import restore_plan
    from dualml.experiment.store.trial import JOB, TrialJob
    from dualml.runner.worker.main import RankTrials

    if not job.get("mkldnn", True):
        import torch

        torch.backends.mkldnn.set_flags(False)
    run = Path(job["run"])
    plan = restore_plan(run / "plan")
    backend = backends()[job["backend"]].create(job.get("device", "cpu"), job["threads"])
    if job["task"] == "usual":
        folders = []
        for arm, seed in job["trials"]:
            folder = usual_folder(run, arm, job["backend"], seed)
            folder.mkdir(parents=True)
            asked = TrialJob(
                arm=arm,
                backend=job["backend"],
                seed=seed,
                device="cpu",
                threads=job["threads"],
                cores=0,
                rendezvous="auto",
                key="0",
                check=False,
                plan_hash=plan.hash,
                checkpoint_every=1e9,
            )
            JOB.write(folder, asked)
            folders.append(folder)
        RankTrials(plan, folders, Quiet(), size=1).run_trials(backend, None)
        return []
    from dualml.experiment.samples import load_samples
    from dualml.runner.worker.setup import RankResources
    from dualml.runner.worker.trial import TrialRunner

    resources, rows = RankResources(backend, load_samples(plan)), []
    for arm, seed in job["trials"]:
        trial = TrialRunner(plan, arm, seed, resources, run, Quiet(), 1e9)
        with_plants = job["task"] == "planted"
        rows += planted(run, trial, job["sizes"]) if with_plants else [changed(run, trial, job)]
    return rows


class Quiet:
    """A sink for the progress messages of a trial."""

    def __call__(self, **event: Any) -> None:
        pass

    def send(self, event: Any) -> None:
        pass


class Follower:
    """Runs a trial's updates and keeps what is judged, without files and evaluation."""

    def __init__(self, trial: Any) -> None:
        self.trial, self.step = trial, 0
        self.losses: list[float] = []
        self.tensors: Record = {}
        self.data: dict[int, str] = {}

    def advance_to(self, last: int) -> Any:
        """Run the updates up to ``last`` and return the trajectory so far."""
        from dualml.experiment.store.trajectory import Trajectory
        from dualml.runner.worker.capture import trace_post_update, trace_pre_update

        trial, trainer, lazy = self.trial, self.trial.trainer, []
        for step in range(self.step + 1, last + 1):
            batch, traced = trial.ranks.batch(step), step in trial.schedule.trace
            if traced:
                seen, self.data[step] = trace_pre_update(trainer, step, batch, trial.probe)
                self.tensors.update(seen)
            lazy.append(trainer.step(batch, step))
            if traced:
                self.tensors.update(trace_post_update(trainer, step))
        self.step = last
        self.losses += [float(loss) for loss in trainer.mean_losses(lazy)]
        held = trial.training.weights()
        return Trajectory(
            trial.backend.name,
            np.array(self.losses),
            dict(self.tensors),
            dict(self.data),
            None,
            math.nan,
            math.nan,
            {name: held[name] for name in trial.spec.parameters()},
        )


def changed(run: Path, trial: Any, job: Record) -> Record:
    """Compare a changed trial with the usual one of the same framework."""
    arm = trial.arm_name.split("-")[0]
    base, drawn = usual_and_envelopes(run, arm, job["backend"], trial.seed, UPDATES)
    found = compared(base, Follower(trial).advance_to(UPDATES), drawn)
    chunk = trial.arm_name.partition("-chunk")[2]
    return {
        "backend": job["backend"],
        "group": "order" if chunk else job["group"],
        "change": f"chunk = {chunk}" if chunk else job["change"],
        "arm": arm,
        "seed": trial.seed,
        **found,
    }


def planted(run: Path, trial: Any, wanted: Mapping[str, Sequence[float]]) -> list[Record]:
    """Compare PyTorch with errors of every kind and size with the usual MindSpore."""
    from dualml.parity.pairs import compare_trajectories

    arm, seed, rows = trial.arm_name, trial.seed, []
    sides = {h: [usual(run, arm, b, seed, h) for b in FRAMEWORKS] for h in HORIZONS}
    for kind, deltas in wanted.items():
        for delta in deltas:
            trial.restart(dict(trial.initial))
            undo = plant(trial.training, kind, delta, seed)
            follower, found = Follower(trial), dict[str, bool]()
            for horizon in HORIZONS:
                (torch_side, other), here = sides[horizon], follower.advance_to(horizon)
                drawn = [torch_side.envelope, other.envelope]
                verdict = compare_trajectories(other, here, MARGIN, drawn).verdict
                found[str(horizon)] = verdict == "different"
                if horizon == 1 and found["1"]:  # update 1 is judged alike under every horizon
                    found |= dict.fromkeys(map(str, HORIZONS), True)
                    break
            undo()
            rows.append({"kind": kind, "arm": arm, "seed": seed, "delta": delta, "found": found})
    return rows


def plant(training: Any, kind: str, delta: float, seed: int) -> Callable[[], None]:
    """Plant a relative error of this size into a PyTorch training; return a function that removes
    it."""
    import torch

    group = training.optimizer.param_groups[0]
    if kind in ("rate", "eps"):
        key = "lr" if kind == "rate" else "eps"
        right = group[key]
        group[key] = right * (1 + delta)
        return lambda: group.update({key: right})
    if kind == "layer":
        layer = training.network.get_submodule("fc1")
        return layer.register_forward_hook(lambda module, given, out: out * (1 + delta)).remove  # type: ignore[no-any-return]
    whole = type(training).backward

    def backward(part: Any, share: float) -> Any:
        loss = whole(training, part, share)
        draw = torch.Generator().manual_seed(1_000_003 * seed + training.step_count)
        for p in training.parameters.values():
            p.grad.mul_(1 + delta * torch.randn(p.shape, generator=draw))
        return loss

    training.backward = backward
    return lambda: delattr(training, "backward")
