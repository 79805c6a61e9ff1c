"""A run folder of training methods with its frozen plan, made without training. By default each
trial recorded exactly the samples that the plan assigns to its arm."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fake_run

from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.methods import METHODS as KNOWN
from dualml.experiment.plan import Plan
from dualml.experiment.sample_digest import SampleDigest, combined_digest
from dualml.experiment.schema import Experiment
from dualml.experiment.store.plan import plan_folder, save_plan
from dualml.report.baseline_diff import rank_parts

ONE = {"optimizer": {"name": "adam", "lr": 0.001}, "batch_size": 64, "epochs": 1.0}
TWO = {**ONE, "method": "ddp", "world_size": 2}
SLOWER = {"optimizer": {"name": "adam", "lr": 0.01}}
ARMS: dict[str, dict[str, Any]] = {
    "single": ONE,
    "bf16": {**ONE, "precision": "bf16"},
    "loop": {**ONE, "method": "single"},
    "ddp": TWO,
    "zero": {**TWO, "method": "zero_optimizer"},
    "twice": {**TWO, "batch_size": 128},
    "padded": {**TWO, "partition": {"name": "distributed_sampler"}},
    "other-rate": {**TWO, **SLOWER},
    "longer": {**TWO, "epochs": 2.0},
    "lower": {**ONE, "method": "amp_bf16"},
}
#: Samples; 35 are left for the last batch.
TRAIN, TEST = 355, 120
PREPARED = [name for name, info in KNOWN["torch"].items() if info.prepared]
METHODS = [name for name, arm in ARMS.items() if arm.get("method")]


@cache
def plan(seeds: tuple[int, ...], arms: tuple[str, ...]) -> Plan:
    table = {
        "name": "ways",
        "title": {"en": "Ways", "zh": "Ways"},
        "model": "softmax",
        "data": {"name": "digits", "train": TRAIN, "test": TEST},
        "seeds": list(seeds),
        "arms": {name: ARMS[name] for name in arms},
    }
    return freeze(Experiment.model_validate(table), load_data("digits", explicit=True))


def recorded(plan: Plan, arm: str, seed: int) -> dict[str, Any]:
    """Return the sample record of ranks that follow the plan."""
    settings = plan.experiment.arms[arm]
    feed, updates = plan.batch_sampler(settings, seed), plan.schedule(settings, seed).updates
    seen, counts = SampleDigest(), [0] * settings.world_size
    for step in range(1, updates + 1):
        prepared = settings.method in PREPARED
        for rank, part in enumerate(rank_parts(feed, step, settings.batch_size, prepared)):
            seen.add(rank, part)
            counts[rank] += len(part)
    return {
        "updates": updates,
        "sample_gradients": sum(counts),
        "world_size": settings.world_size,
        "samples_sha256": combined_digest(seen.rank_digests),
        "samples": [{"n": n, "sha256": seen.rank_digests[r]} for r, n in enumerate(counts)],
        "step_s": [0.01, 0.02, 0.03],
    }


def serial(
    arm: str,
    seed: int = 0,
    verdict: str | None = "equal",
    reason: str = "inside_envelope",
    *,
    against: str = "single",
    ratio: float = 0.5,
    **more: Any,
) -> dict[str, Any]:
    """Return one verdict of ``parity.json`` against the serial run."""
    phases = {"loss": {"max": ratio * 1e-7, "envelope": 1e-7, "ratio": ratio, "step": 3}}
    return {
        "arm": arm,
        "seed": seed,
        "backend": "torch",
        "against": against,
        "verdict": verdict,
        "reason": reason,
        "phases": phases if verdict else {},
        **more,
    }


def make_run(
    folder: Path,
    *,
    arms: Sequence[str] = tuple(ARMS),
    seeds: Sequence[int] = (0,),
    planned: bool = True,
    judged: Sequence[dict[str, Any]] | None = None,
    lowered: Sequence[dict[str, Any]] = (),
    change: Callable[[dict[str, Any]], None] = lambda trial: None,
) -> Path:
    """Write the run folder and return it.

    Args:
        planned: whether the folder contains its plan.
        judged: verdicts made by `serial`; by default every exact method is equal.
        change: may edit what a trial recorded.
    """
    frozen = plan(tuple(seeds), tuple(arms))

    def edit(content: dict[str, Any]) -> None:
        for trial in content["trials"]:
            trial |= recorded(frozen, trial["arm"], trial["seed"])
            trial["plan_hash"] = frozen.hash
            change(trial)
        content |= {"plan_hash": frozen.hash, "plan_parts": frozen.parts, "data": frozen.data}
        content["experiment"] = frozen.experiment.describe()

    described = frozen.experiment.describe()["arms"]
    usual = {"updates": 0, "samples": 0, "chunk": 256}
    fake_run.make_run(
        folder,
        arms={name: usual | arm for name, arm in described.items()},
        backends=("torch",),
        seeds=seeds,
        failed=None,
        different=None,
        parity=False,
        change=edit,
    )
    exact = [name for name in METHODS if name in arms and name != "lower"]
    every = [serial(arm, seed) for arm in exact for seed in seeds] if judged is None else judged
    parity = {"format": 1, "settings": {"margin": 10.0, "floor": 1.2e-7}, "comparisons": []}
    (folder / "parity.json").write_text(
        json.dumps({**parity, "serial": list(every), "lowered": list(lowered)})
    )
    if planned:
        save_plan(frozen, plan_folder(folder))
    return folder
