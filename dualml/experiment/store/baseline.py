"""Baselines: extracts of a run, small enough for a repository, with which later runs are compared.

A baseline has the files of a run folder except logs, plan and checkpoints, with every large tensor
folded into `FOLDS` sums of its elements under random signs (a count sketch: Charikar, Chen and
Farach-Colton 2002). Distances survive that: ‖fold(a) − fold(b)‖² is ‖a − b‖² on average, and the
distance itself has a relative error of 1/√(2·FOLDS), 9 %. Equal tensors stay equal, and a single
wrong element stays visible.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.common.seeds import random_bits
from dualml.experiment.store.envelope import ENVELOPE
from dualml.experiment.store.folder import check_free
from dualml.experiment.store.jsonfile import Count, JsonFile, Record
from dualml.experiment.store.manifest import RUN, Key
from dualml.experiment.store.plan import PLAN, plan_folder
from dualml.experiment.store.records import ENCODE, read_lines, records_path
from dualml.experiment.store.tensors import TRACE, WEIGHTS
from dualml.experiment.store.trajectory import Trajectory
from dualml.experiment.store.trial import RESULT, trial_folder

#: Number of sums into which a tensor is folded, a power of two; a smaller tensor is kept as it is.
FOLDS = 64
#: Digits of an envelope's widths: a margin of ten needs no more.
DIGITS = 3


class BaselineRecord(Record):
    """The record of a baseline: ``folds`` per tensor, and ``starts``, initial weight of the plan →
    SHA-256."""

    folds: Count
    starts: dict[str, str]


BASELINE = JsonFile("baseline.json", BaselineRecord, version=1)


def fold(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of more than `FOLDS` elements folded into `FOLDS` float32 sums, (`FOLDS`,),
    of its elements under random signs, always the same for a size; a smaller array unchanged."""
    if array.size <= FOLDS:
        return array
    places, signs = _hash(array.size)
    sums = np.bincount(places, weights=signs * array.ravel(), minlength=FOLDS)
    return sums.astype(np.float32)


@lru_cache(maxsize=64)
def _hash(size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return, for each of ``size`` elements, the index of its sum, from 0 to `FOLDS` − 1, and its
    sign, 1 or −1; always the same for a size."""
    digits = FOLDS.bit_length() - 1
    drawn = random_bits(size * (digits + 1), 0, "fold").reshape(size, digits + 1)
    return drawn[:, :digits] @ (1 << np.arange(digits)), 2.0 * drawn[:, digits] - 1


def fold_trajectory(trajectory: Trajectory) -> Trajectory:
    """Return a copy of a trajectory with every tensor and weight folded by `fold`, for the
    comparison with a baseline."""
    return replace(
        trajectory,
        tensors={key: fold(value) for key, value in trajectory.tensors.items()},
        weights={name: fold(value) for name, value in trajectory.weights.items()},
    )


def folded_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter in a baseline: (`FOLDS`,) if it has more elements, else
    its own."""
    return {name: (FOLDS,) if math.prod(shape) > FOLDS else shape for name, shape in shapes.items()}


def write_baseline(run: Path, target: Path, starts: Mapping[str, str]) -> int:
    """Write the baseline of the run folder ``run`` to ``target``, and return its size in bytes; if
    the writing fails, ``target`` is removed again.

    Args:
        starts: initial weight of the plan → its SHA-256.

    Raises:
        UserError: a trial did not end well, a file is missing, ``target`` is not empty or cannot be
            written.
    """
    record, plan = RUN.read(run), PLAN.read(plan_folder(run))
    failed = [
        f"{'/'.join(map(str, t.key))} ({t.status})" for t in record.trials if t.status != "ok"
    ]
    if failed:
        raise UserError(
            f"{run}: not every trial ended well: {', '.join(failed)}; a baseline is made of a run "
            "that is right"
        )
    check_free(target, "name another folder")
    try:
        plan_folder(target).mkdir(parents=True)
        RUN.write(target, record)
        PLAN.write(plan_folder(target), plan.model_copy(update={"deals": {}}))
        for trial in record.trials:
            if record.experiment["arms"][trial.arm].get("kind", "train") == "train":
                _write_trial(run, target, trial.key)
        made = BASELINE.make_record({"folds": FOLDS, "starts": dict(starts)})
        BASELINE.write(target, made)
    except BaseException as error:  # half a baseline would be taken for a run
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"{target}: cannot be written: {error.strerror or error}") from None
        raise
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _write_trial(run: Path, target: Path, key: Key) -> None:
    """Copy a trial's result, tensors, envelope and rank 0's records into a baseline: tensors
    folded, widths rounded, metrics per class left out."""
    source, place = trial_folder(run, key), trial_folder(target, key)
    place.mkdir(parents=True)
    RESULT.write(place, RESULT.read(source))
    for file in (TRACE, WEIGHTS):
        file.write(place, {name: fold(value) for name, value in file.read(source).items()})
    if (envelope := ENVELOPE.read_if_present(source)) is not None:
        ENVELOPE.write(place, ENVELOPE.make_record(_round_floats(envelope.describe())))
    kept = (line for line in read_lines(source, 0) if "class" not in line)
    content = "".join(f"{ENCODE(line)}\n" for line in kept)
    write_bytes(records_path(place, 0), content.encode())


def _round_floats(value: Any) -> Any:
    """Return a JSON value with all floats rounded to `DIGITS` significant digits; integers stay."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _round_floats(inner) for key, inner in value.items()}
    return [_round_floats(inner) for inner in value] if isinstance(value, list) else value
