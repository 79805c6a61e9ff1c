"""``best.safetensors``: the weights with the smallest validation loss, and their results."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.numpy import save

from dualml.common.arrays import Arrays, open_tensors
from dualml.common.files import remove_file, write_bytes
from dualml.common.parse import from_json
from dualml.experiment.store.jsonfile import Count, Number, Record, validate_record

NAME = "best.safetensors"


class BestRecord(Record):
    """Results of the weights with the smallest validation loss, and the update after which they
    were taken; ``confusion`` counts test samples by class (rows) and predicted class."""

    step: Count
    validation_loss: Number
    validation_accuracy: Number
    test_loss: Number | None
    test_accuracy: Number
    confusion: list[list[Count]] = []


def write_best(trial: Path, best: BestRecord, weights: Arrays) -> None:
    """Write the best weights of a trial, by name, with their results to its folder ``trial``, in
    place of earlier ones."""
    write_bytes(trial / NAME, save(weights, {"best": json.dumps(best.describe())}))


def read_best(trial: Path) -> BestRecord | None:
    """Read the results stored with a trial's best weights, not the weights; None if there is no
    file.

    Raises:
        UserError: the file is not readable.
    """
    path = trial / NAME
    if not path.exists():
        return None
    with open_tensors(path, "not readable") as file:
        return validate_record(BestRecord, from_json(file.metadata()["best"].encode()), path)


def remove_best(trial: Path) -> None:
    """Remove a trial's best weights, if there are any."""
    remove_file(trial / NAME)
