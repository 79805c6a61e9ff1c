"""Files of replays of single updates: states to start from, tensors, envelope widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.files import readable
from dualml.store.jsonfile import Count, JsonFile, Number, Record
from dualml.store.tensors import TensorFile
from dualml.store.trial import WorkerJob

Arrays = dict[str, NDArray[Any]]
States = dict[int, tuple[Arrays, dict[str, Arrays]]]


@dataclass(frozen=True)
class Side:
    """Result of one backend's replay: for each rank ``STEP/PHASE/TENSOR`` → array, and the widths
    of the rounding envelopes under the same keys."""

    backend: str
    ranks: Sequence[Arrays]
    widths: Sequence[Mapping[str, float]]


def flatten(states: Mapping[int, tuple[Arrays, Mapping[str, Arrays]]]) -> Arrays:
    """Flatten weights and optimizer state before updates into the arrays of one file."""
    arrays: Arrays = {}
    for step, (weights, slots) in states.items():
        arrays |= {f"{step}|weights|{name}": w for name, w in weights.items()}
        for slot, named in slots.items():
            arrays |= {f"{step}|state|{slot}|{name}": a for name, a in named.items()}
    return {name: np.ascontiguousarray(a) for name, a in arrays.items()}


def unflatten(arrays: Mapping[str, NDArray[Any]]) -> States:
    """Undo `flatten`."""
    states: States = {}
    for key, value in arrays.items():
        step, kind, *rest = key.split("|")
        weights, state = states.setdefault(int(step), ({}, {}))
        if kind == "weights":
            weights[rest[0]] = value
        else:
            state.setdefault(rest[0], {})[rest[1]] = value
    return states


class ReplayJob(WorkerJob):
    """Job of a worker that replays updates of a trial.

    ``run`` is the run folder; ``leads`` says whether this backend makes the states from which all
    backends start.
    """

    run: str
    steps: list[Count]
    leads: bool


class WidthsRecord(Record):
    """Widths of the rounding envelopes of a replay."""

    widths: dict[str, Number | None]


REPLAY_JOB = JsonFile("job.json", ReplayJob)
START, STATES = TensorFile("start.safetensors"), TensorFile("states.safetensors")


def write_start(folder: Path, states: States) -> None:
    """Write the states from which the leading backend continues."""
    START.write(folder, flatten(states))


def read_start(folder: Path) -> States:
    """Read the states written by `write_start`."""
    return states_in(folder, START)


def write_states(folder: Path, states: States) -> None:
    """Write the states before each replayed update."""
    STATES.write(folder, flatten(states))


def read_states(folder: Path) -> States:
    """Read the states written by `write_states`."""
    return states_in(folder, STATES)


def states_in(folder: Path, file: TensorFile) -> States:
    """Read a file of states; raise `UserError` if it is missing or damaged."""
    arrays = file.read(folder)
    with readable(f"{folder / file.name}: not states"):
        return unflatten(arrays)


def job_folder(folder: Path, backend: str) -> Path:
    """Return the folder of a backend's replay job and of its processes' output."""
    return folder / f"{backend}.job"


def write_side(
    folder: Path, backend: str, rank: int, arrays: Arrays, widths: Mapping[str, float]
) -> None:
    """Write the result of one rank of a replay."""
    place = folder / backend
    place.mkdir(parents=True, exist_ok=True)
    tensors, numbers = side_files(rank)
    tensors.write(place, arrays)
    numbers.write(place, numbers.made({"widths": widths}))


def read_side(folder: Path, backend: str, size: int) -> Side:
    """Read the results of all ranks of a replay.

    Raises:
        UserError: a file is missing or damaged.
    """
    ranks, widths = [], []
    for rank in range(size):
        tensors, numbers = side_files(rank)
        ranks.append(tensors.read(folder / backend))
        record = numbers.read(folder / backend)
        widths.append({key: math.inf if w is None else w for key, w in record.widths.items()})
    return Side(backend, ranks, widths)


def side_files(rank: int) -> tuple[TensorFile, JsonFile[WidthsRecord]]:
    """Return the file types of a rank's tensors and widths."""
    return TensorFile(f"rank{rank}.safetensors"), JsonFile(f"rank{rank}.json", WidthsRecord)
