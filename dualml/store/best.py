"""``best.safetensors``: the weights of the smallest validation loss, and what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import save

from dualml.arrays import Arrays
from dualml.files import check_regular, readable, remove, write_bytes
from dualml.parse import from_json
from dualml.store.jsonfile import Count, Number, Record, checked

NAME = "best.safetensors"


class Best(Record):
    """The update after which the weights were these, and how they do; ``confusion``: the test
    samples of each class (rows) by the class that was predicted."""

    step: Count
    validation_loss: Number
    validation_accuracy: Number
    test_loss: Number | None
    test_accuracy: Number
    confusion: list[list[Count]] = []


def write_best(trial: Path, best: Best, weights: Arrays) -> None:
    write_bytes(trial / NAME, save(weights, {"best": json.dumps(best.describe())}))


def read_best(trial: Path) -> Best | None:
    """What is known of the weights in the file; None where there is none.

    Raises:
        UserError: there is one that is not readable.
    """
    path = trial / NAME
    if not path.exists():
        return None
    check_regular(path)
    with readable(f"{path}: not readable"), safe_open(path, framework="numpy") as file:
        return checked(Best, from_json(file.metadata()["best"].encode()), path)


def remove_best(trial: Path) -> None:
    remove(trial / NAME)
