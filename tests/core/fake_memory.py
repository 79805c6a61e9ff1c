"""A run folder of arms that shard their memory, made without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_run

from dualml.algorithms.model.zoo import model
from dualml.parallel.memory import estimate_sharded_memory
from dualml.parallel.zero import units_of
from dualml.parallel.zero.settings import Sharding
from dualml.parallel.zero.units import communication_volume

BUCKET = 2**16
SPEC = model("lenet")
PSI = sum(size for size in (unit.size for unit in units_of(SPEC, BUCKET, 1)))
ADAM = fake_run.MAIN["adam"] | {"epochs": 1}
TWO = {**ADAM, "world_size": 2, "aggregation": {"bucket_bytes": BUCKET}}
ARMS: dict[str, dict[str, Any]] = {
    "one": ADAM,
    "sgd": fake_run.arm("sgd", 0.05, 12, 1),
    "bf16": {**ADAM, "precision": "bf16"},
    "replicas": TWO,
    **{f"zero{stage}": {**TWO, "zero": stage} for stage in (1, 2, 3)},
    "wrong": {**TWO, "zero": 1, "zero_reduce": "all_reduce"},
    "layers": {**ADAM, "world_size": 2, "method": "fsdp_layers", "backends": ["torch"]},
    "absent": {**ADAM, "world_size": 2, "method": "hsdp", "backends": ["mindspore"]},
}
REASON = "MindSpore has it for Ascend only"
HEADERS = 1000  # bytes on the wire beside the closed form


def sharding(arm: str) -> Sharding | None:
    settings = ARMS[arm]
    stage, reduce = settings.get("zero", 0), settings.get("zero_reduce", "reduce_scatter")
    return Sharding(stage, reduce, BUCKET) if stage else None


def device_memory(arm: str, backend: str) -> list[dict[str, Any]]:
    """Return the memory that each rank counted: the closed form, except that FSDP's first rank has
    one more row of weights."""
    settings, slots = ARMS[arm], 0 if arm == "sgd" else 2
    parts = {"weights": PSI, "gradients": PSI, "state": slots * PSI, "buckets": 0}
    if asked := sharding(arm):
        h = estimate_sharded_memory(units_of(SPEC, BUCKET, 2), 2, asked.stage, slots)
        parts = {
            "weights": h.weights,
            "gradients": h.gradients,
            "state": h.state,
            "buckets": h.gathered,
        }
    elif arm == "layers":
        parts = {"weights": PSI // 2, "gradients": PSI // 2, "state": PSI, "buckets": PSI // 4}
    own = {"parameters": PSI, **{name: 4 * n for name, n in parts.items()}}
    own["activations"] = None if backend == "mindspore" else (3 if arm == "bf16" else 4) * 2**20
    ranks = [dict(own) for _ in range(settings.get("world_size", 1))]
    if arm == "layers":
        ranks[0]["weights"] += 400
        ranks[1]["weights"] -= 400
    return ranks


def sent_bytes(arm: str, backend: str) -> float | None:
    settings = ARMS[arm]
    if settings.get("world_size", 1) == 1:
        return None
    asked, units = sharding(arm), units_of(SPEC, BUCKET, 2)
    elements = communication_volume(units, 2, asked) if asked else PSI
    return (2 if backend == "mindspore" else 1) * 4 * elements + HEADERS


Change = Callable[[list[dict[str, Any]]], None]


def make_run(folder: Path, change: Change = lambda trials: None) -> Path:
    """Write the run folder and return it; ``change`` may edit its trials."""

    def is_requested(trial: dict[str, Any]) -> bool:
        return trial["backend"] in ARMS[trial["arm"]].get("backends", [trial["backend"]])

    def add_memory(run: dict[str, Any]) -> None:
        run["trials"] = list(filter(is_requested, run["trials"]))
        for trial in run["trials"]:
            arm, backend = trial["arm"], trial["backend"]
            if arm == "absent":
                trial |= {"status": "unsupported", "reason": REASON, "train_s": None}
                continue
            trial["world_size"] = ARMS[arm].get("world_size", 1)
            trial["device_memory"] = device_memory(arm, backend)
            if (nbytes := sent_bytes(arm, backend)) is not None:
                trial["sent_bytes"] = nbytes
        change(run["trials"])

    fake_run.make_run(
        folder,
        arms=ARMS,
        backends=("torch", "mindspore"),
        seeds=(0,),
        failed=None,
        different=None,
        parity=False,
        change=add_memory,
    )
    fake_run.write_plan(folder)
    return folder
