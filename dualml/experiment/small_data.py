"""Changes of a protocol for small data, in numbers for terminal and report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dualml.common.json_types import JsonMapping, JsonObject
from dualml.experiment.data import DATASETS, TEXTS
from dualml.experiment.data.labelled import split_slices

#: Name that stands for the full-size data if the user asked for the small ones.
USUAL = "mnist"


def small_data_values(experiment: JsonMapping, data: JsonMapping) -> JsonObject | None:
    """Return the values of the message ``notice.small``: ``name`` and ``train`` (samples) of the
    data, ``times`` (passes for each planned one), ``arm``, the first arm that trains for a number
    of epochs, its ``updates``, and for the full-size data ``wanted`` (name), ``full`` (updates) and
    ``full_train``; None if the passes over the data are the experiment's own.

    Args:
        experiment: result of `Experiment.describe`.
        data: the data as they were found, with ``name`` and ``train``.
    """
    times = experiment.get("epochs_times") or 1
    arms = experiment.get("arms") or {}
    with_epochs = {n: a for n, a in arms.items() if a.get("epochs") and a.get("batch_size")}
    passing = [name for name, arm in with_epochs.items() if not arm.get("updates")]
    if times == 1 or not passing:
        return None
    arm = with_epochs[passing[0]]
    name, whole = full_size(experiment.get("data") or {})

    def count_updates(samples: int, epochs: float) -> int:
        """Return the number of updates in ``epochs`` passes over ``samples`` samples."""
        return max(1, round(epochs * math.ceil(samples / int(arm["batch_size"]))))

    return {
        "name": data["name"],
        "train": data["train"],
        "times": times,
        "arm": passing[0],
        "updates": count_updates(data["train"], arm["epochs"]),
        "wanted": name,
        "full": count_updates(whole, arm["epochs"] / times),
        "full_train": whole,
    }


def full_size(data: Mapping[str, Any]) -> tuple[str, int]:
    """Return name and number of training samples of the full-size data for which the experiment
    with this table ``data`` was designed; MNIST's for embedded or unknown data."""
    wanted = str(data.get("name"))
    if data.get("labels") and wanted in TEXTS and not TEXTS[wanted].generated:
        train, *_ = split_slices(wanted, TEXTS[wanted].lines)
        return wanted, train.stop
    full = DATASETS.get(wanted, DATASETS[USUAL])
    full = DATASETS[USUAL] if full.embedded else full
    return full.name, full.train
