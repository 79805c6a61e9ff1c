"""A small run folder with partitioned samples: `fake_run` with a plan's partition statistics,
per-class accuracies and replica divergence.

The partitions are real ones of 1,200 samples with ten labels, 120 of each. Every measured number is
made up, so that a test knows it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fake_run
import numpy as np

from dualml.experiment.arm import make_arm
from dualml.experiment.batches import EpochBatches, freeze_partitions, partition_key
from dualml.parallel.partition import partition_from

LABELS = np.arange(fake_run.TRAIN) % 10


def arm(name: str, group: str, n: int = 2, every: int = 0, **settings: Any) -> dict:
    """Return an arm with a partition for n ranks; ``every`` is the averaging period in updates."""
    alone = settings.pop("dealt_to", 0)
    made = fake_run.arm("sgd", 0.05, 12, 1, group)
    made["partition"] = partition_from({"name": name, **settings}).describe()
    made |= {"dealt_to": alone} if alone else {"world_size": n}
    if every:
        made["aggregation"] = {"strategy": "all_reduce", "of": "parameters", "every": every}
    return made


HALVES = {"classes": 5, "assigned": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]}
#: Two labels are on both ranks; each rank has an excess of two tenths in four labels.
PARTLY = {"classes": 6, "assigned": [[0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9]]}
ARMS = {
    "part": arm("random_partition", "sampling"),
    "part-one": arm("random_partition", "sampling", dealt_to=2),
    "sample": arm("random_sampling", "sampling"),
    "once": arm("random_sampling", "sampling", replacement=False),
    "kept": arm("bootstrap", "sampling"),
    "sampler": arm("distributed_sampler", "sampling"),
    "skew-none": arm("random_partition", "skew", every=4),
    "skew-half": arm("label_classes", "skew", every=4, **HALVES),
    "skew-partly": arm("label_classes", "skew", every=4, **PARTLY),
    "skew-noise": arm("feature_noise", "skew", every=4, sigma=1.0),
    "skew-half-16": arm("label_classes", "skew", every=16, **HALVES),
    "skew-half-gradients": arm("label_classes", "skew", **HALVES),
    "fractions": arm("fractions", "uneven", fractions=[0.75, 0.25]),
    "fractions-one": arm("fractions", "uneven", fractions=[0.75, 0.25], dealt_to=2),
}
#: Test accuracy of seeds 0, 1 and 2 on every backend.
ACCURACY = {
    "part": (0.90, 0.91, 0.92),
    "sample": (0.901, 0.91, 0.919),  # +0.1, 0, -0.1 points: equal
    "once": (0.88, 0.91, 0.94),  # -2, 0, +2 points: who knows
    "kept": (0.86, 0.872, 0.878),  # -4, -3.8, -4.2 points: worse
    "sampler": (0.90, 0.91, 0.92),
    "skew-none": (0.90, 0.91, 0.92),
    "skew-half": (0.70, 0.71, 0.72),
    "skew-partly": (0.80, 0.81, 0.82),
    "skew-noise": (0.89, 0.90, 0.91),
    "skew-half-16": (0.50, 0.51, 0.52),
    "skew-half-gradients": (0.90, 0.90, 0.90),
}
#: Mean divergence of the two ranks, which are at 0.8 and 1.2 times this value.
DIVERGENCE = {
    "skew-none": 0.01,
    "skew-half": 0.2,
    "skew-partly": 0.1,
    "skew-noise": 0.05,
    "skew-half-16": 0.4,
}
DRIFT = 10  # times the divergence
#: Accuracy of class 7 below the mean; class 2 is above it by the same amount.
WORSE = {"skew-half": 0.25, "skew-half-16": 0.3, "skew-half-gradients": 0.1}
RULES = dict.fromkeys(DIVERGENCE, "local_updates")


def make_run(
    folder: Path,
    *,
    arms: Sequence[str] | None = None,
    backends: Sequence[str] = ("torch", "mindspore"),
    seeds: Sequence[int] = (0, 1, 2),
    failed: tuple[str, str, int] | None = None,
    others: tuple[str, str] | None = None,
    parity: bool = True,
    change: Callable[[dict], None] | None = None,
    settings: dict[str, dict] | None = None,
) -> Path:
    """Write the run folder and return it.

    Args:
        others: an arm and backend that trained on other samples.
        settings: further arms besides `ARMS`.
    """
    known = {**ARMS, **(settings or {})}
    chosen = {name: known[name] for name in arms or known}
    stated: dict[str, list[dict]] = {}
    order: dict[str, Any] = {}
    pool = np.arange(fake_run.TRAIN, dtype=np.int32)
    for name, told in chosen.items():
        for seed in seeds:
            freeze_partitions(name, make_arm(told), seed, pool, LABELS, order, stated)

    def edit(run: dict) -> None:
        run["name"] = run["experiment"]["name"] = "lab3"
        for trial in run["trials"]:
            _trial(folder, trial, chosen[trial["arm"]], stated, others)
        if change:
            change(run)

    fake_run.make_run(
        folder,
        arms=chosen,
        backends=backends,
        seeds=seeds,
        failed=failed,
        different=None,
        notice=None,
        quick=False,
        parity=parity,
        change=edit,
    )
    fake_run.write_plan(folder, deals=stated)
    if parity:
        run = json.loads((folder / "run.json").read_text("utf-8"))
        path = folder / "parity.json"
        told = json.loads(path.read_text("utf-8"))
        told["serial"] = [s for t in run["trials"] for s in _serial(t, chosen, others)]
        path.write_text(json.dumps(told), "utf-8")
    return folder


def _trial(
    folder: Path,
    trial: dict,
    settings: dict,
    stated: dict[str, list[dict]],
    others: tuple[str, str] | None,
) -> None:
    """Add partition results to a trial of `fake_run`."""
    name, backend, seed = trial["arm"], trial["backend"], trial["seed"]
    if trial["status"] != "ok":
        return
    place = folder / "trials" / name / backend / f"seed{seed}"
    arm = make_arm(settings)
    key = partition_key(arm, seed) if settings.get("partition") else "shared"
    if key in stated:
        sizes = stated[key][0]["sizes"]
        trial["updates"] = EpochBatches(
            [np.zeros(s, np.int8) for s in sizes], arm.batch_size
        ).updates
    plain = name.removesuffix("-one")
    trial["test_accuracy"] = right = ACCURACY.get(plain, (0.9, 0.9, 0.9))[seed % 3]
    worse = WORSE.get(plain, 0.0)
    trial["class_accuracy"] = [right + worse * ((k == 2) - (k == 7)) for k in range(10)]
    seen = key + (backend if others == (name, backend) else "")
    trial["samples_sha256"] = hashlib.sha256(seen.encode()).hexdigest()
    trial["final_loss"] = 0.2 + 0.01 * seed
    if settings.get("world_size", 1) > 1:
        trial |= {"world_size": settings["world_size"], "how": {"all_reduce": "native: dist"}}
        trial["train_s"] = trial["updates"] * 0.01
    if name in DIVERGENCE:
        _write_divergence(place, name, settings["aggregation"]["every"])


def _write_divergence(place: Path, name: str, every: int) -> None:
    for rank, factor in enumerate((0.8, 1.2)):
        lines = []
        for k in range(1, 4):
            value = factor * DIVERGENCE[name]
            drift = None if k == 1 else DRIFT * value
            for metric, told in (("divergence", value), ("drift", drift)):
                lines.append({"metric": metric, "step": k * every, "value": told, "unit": "1"})
        with (place / f"rank{rank}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def _serial(trial: dict, arms: dict, others: tuple[str, str] | None) -> list[dict[str, Any]]:
    name, backend = trial["arm"], trial["backend"]
    against = {"part": "part-one", "fractions": "fractions-one", "skew-none": "part-one"}.get(name)
    if against not in arms or trial["status"] != "ok":
        return []
    here = {"arm": name, "seed": trial["seed"], "backend": backend, "against": against}
    if name in RULES:
        return [{**here, "verdict": None, "reason": RULES[name]}]
    if others == (name, backend):
        return [{**here, "verdict": "not comparable", "reason": "other_samples", "evidence": {}}]
    pattern = fake_run._comparison(trial, trial, arms[name], False)
    return [{k: v for k, v in pattern.items() if k not in ("a", "b")} | here]
