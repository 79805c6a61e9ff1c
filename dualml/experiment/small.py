"""What little data change in a protocol, in numbers for terminal and report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dualml.data import DATASETS

#: Stands for the data of full size where the user asked for the small ones.
USUAL = "mnist"


def shortage(experiment: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Values of ``notice.small``; None where the passes over the data are the experiment's own.

    Args:
        experiment: `Experiment.describe`.
        data: the data as they were found, with ``name`` and ``train``.
    """
    times = experiment.get("epochs_times") or 1
    arms = experiment.get("arms") or {}
    with_epochs = {n: a for n, a in arms.items() if a.get("epochs") and a.get("batch_size")}
    passing = [name for name, arm in with_epochs.items() if not arm.get("updates")]
    if times == 1 or not passing:
        return None
    arm = with_epochs[passing[0]]
    wanted = (experiment.get("data") or {}).get("name")
    full = DATASETS.get(str(wanted), DATASETS[USUAL])
    full = DATASETS[USUAL] if full.embedded else full

    def updates(samples: int, epochs: float) -> int:
        return max(1, round(epochs * math.ceil(samples / int(arm["batch_size"]))))

    return {
        "name": data["name"], "train": data["train"], "times": times, "arm": passing[0],
        "updates": updates(data["train"], arm["epochs"]), "wanted": full.name,
        "full": updates(full.train, arm["epochs"] / times), "full_train": full.train,
    }  # fmt: skip
