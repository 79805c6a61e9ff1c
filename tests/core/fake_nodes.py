"""A small run folder of one rank against several, with known times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import fake_run

UPDATES = 100
BATCH = 48
#: Arm → milliseconds of an update on torch, a number for each seed.
STEP = {
    "one-node": (10.0, 10.0, 10.0),
    "nodes-n2": (10 / 1.4, 10 / 1.6, 10 / 1.8),
    "nodes-n4": (10 / 2.71,) * 3,
    "weak-2": (12.5, 12.5, 12.5),
    "weak-4": (40 / 2.93,) * 3,
    "native": (5.0, 5.0, 5.0),
    "overlap": (10 / 1.4, 10 / 1.6, 10 / 1.8),
    "accumulate": (12.5, 12.5, 12.5),
    "shared": (8.0, 8.0, 8.0),
    "alone": (16.0, 16.0, 16.0),
}
SLOWER = {"torch": 1.0, "mindspore": 2.0}
#: Milliseconds of gradient, update, waiting and transferring, for every arm with ranks.
SPENT = (2.0, 1.0, 0.6, 0.4)
#: Arm → test accuracy at the end, by seed.
ACCURACY = {
    "batch-12": (0.950, 0.951, 0.952),
    "batch-48": (0.901, 0.899, 0.903),
    "batch-48-scaled": (0.949, 0.951, 0.953),
    "batch-240": (0.93, 0.95, 0.97),
    "batch-240-warm-up": (0.80, 0.81, 0.80),
}


def node(n: int, batch: int = BATCH, group: str = "strong", cores: int = 1, **more: Any) -> dict:
    made = fake_run.arm("sgd", 0.05, batch, 1, group) | {"updates": UPDATES, "cores": cores}
    return made | ({"world_size": n} if n > 1 else {}) | more


def step(batch: int, lr: float, warmup: int = 0) -> dict:
    made = fake_run.arm("sgd", lr, batch, 3, "batch") | {"world_size": 2}
    made["schedule"] = made["schedule"] | {"warmup": warmup}
    return made


SCALING = {
    "one-node": node(1),
    "nodes-n2": node(2),
    "nodes-n4": node(4),
    "weak-2": node(2, 2 * BATCH, "weak", seeds=1),  # how often says nothing of what is done
    "weak-4": node(4, 4 * BATCH, "weak"),
}
MODES = {
    "native": node(2, group="native", seeds=1, aggregation={"strategy": "native"}),
    "overlap": node(
        2,
        group="native",
        aggregation={"strategy": "all_reduce", "overlap": True, "bucket_bytes": 65536},
    ),
    "accumulate": node(2, group="native", chunk=8),
    "replicas": node(1, group="native", cores=0, aggregation={"strategy": "replicas"}),
}
SHARED = {"alone": node(1, 24, "same", 0), "shared": node(2, 24, "same", 0)}
BATCHES = {
    "batch-12": step(12, 0.05),
    "batch-48": step(48, 0.05),
    "batch-48-scaled": step(48, 0.2),
    "batch-240": step(240, 0.05),
    "batch-240-warm-up": step(240, 1.0, 5),
}
ARMS = SCALING | MODES | SHARED | BATCHES
WHY = "torch.nn.DataParallel needs two GPUs; there are 0"


def make_run(
    folder: Path,
    *,
    arms: Sequence[str] | None = None,
    backends: Sequence[str] = ("torch", "mindspore"),
    seeds: Sequence[int] = (0, 1, 2),
    cores: str | None = "2 usable, 2 physical, 4 logical",
    change: Callable[[dict], None] | None = None,
) -> Path:
    """Write the run folder and return it; with ``cores`` None no cores were recorded."""
    chosen = {name: deepcopy(ARMS[name]) for name in arms or ARMS}

    def edit(run: dict) -> None:
        run["name"] = run["experiment"]["name"] = "nodes"
        for known in run["environment"].values():
            known.pop("cores")
            known |= {"cores": cores} if cores else {}
        for trial in run["trials"]:
            _trial(trial, chosen[trial["arm"]])
        if change:
            change(run)

    options: dict[str, Any] = {"failed": None, "different": None, "notice": None}
    return fake_run.make_run(
        folder, arms=chosen, backends=backends, seeds=seeds, parity=False, change=edit, **options
    )


def _trial(trial: dict, settings: dict) -> None:
    arm, n, times = trial["arm"], settings.get("world_size", 1), SLOWER[trial["backend"]]
    if arm == "replicas":
        keys = ("train_s", "final_loss", "train_accuracy", "test_accuracy", "updates")
        trial |= {"status": "unsupported", "reason": WHY} | dict.fromkeys(keys)
        return
    if arm in STEP:
        trial |= {"updates": UPDATES, "sample_gradients": UPDATES * settings["batch_size"]}
        trial["train_s"] = UPDATES * STEP[arm][trial["seed"]] * times / 1e3
    if arm in ACCURACY:
        trial["test_accuracy"] = ACCURACY[arm][trial["seed"]]
    if arm == "native":
        trial["how"] = {"gradients": "native: torch.nn.parallel.DistributedDataParallel"}
        trial["final_loss"] += 0.001
    if settings.get("cores"):
        trial["threads"] = settings["cores"]
    if n > 1:
        gradient, update, wait, transfer = (ms * times / 1e3 for ms in SPENT)
        told = {"compute_s": gradient + update, "update_s": update, "wait_s": wait}
        told |= {"transfer_s": transfer, "step_s": gradient + update + wait + transfer}
        trial |= {"world_size": n, "ranks": [told] * n, "communication_share": 0.25}
        trial.setdefault("threads", 1)
