"""Files of replays of single updates: states to start from, tensors, envelope widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.files import convert_read_errors
from dualml.experiment.store.jsonfile import Count, JsonFile, Number, Record
from dualml.experiment.store.tensors import TraceTensorFile
from dualml.experiment.store.trial import WorkerJob

Arrays = dict[str, NDArray[Any]]
States = dict[int, tuple[Arrays, dict[str, Arrays]]]


@dataclass(frozen=True)
class ReplayRecord:
    """Result of one backend's replay: for each rank ``STEP/PHASE/TENSOR`` → array, and the widths
    of the rounding envelopes under the same keys."""

    backend: str
    ranks: Sequence[Arrays]
    widths: Sequence[Mapping[str, float]]


def flatten(states: Mapping[int, tuple[Arrays, Mapping[str, Arrays]]]) -> Arrays:
    """Return the ``states`` (step → weights and optimizer state before this update) as arrays of
    one file, named ``STEP|weights|NAME`` and ``STEP|state|KEY|NAME``."""
    arrays: Arrays = {}
    for step, (weights, slots) in states.items():
        arrays |= {f"{step}|weights|{name}": w for name, w in weights.items()}
        for slot, named in slots.items():
            arrays |= {f"{step}|state|{slot}|{name}": a for name, a in named.items()}
    return {name: np.ascontiguousarray(a) for name, a in arrays.items()}


def unflatten(arrays: Mapping[str, NDArray[Any]]) -> States:
    """Return the states that `flatten` has packed into ``arrays``: step → weights and state."""
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


class StatesFile(TraceTensorFile):
    """A file of weights and optimizer state before some updates."""

    def write_states(self, folder: Path, states: States) -> None:
        """Write the states (step → weights and optimizer state) to the file in ``folder``."""
        self.write(folder, flatten(states))

    def read_states(self, folder: Path) -> States:
        """Read the states; raise `UserError` if the file is missing or damaged."""
        arrays = self.read(folder)
        with convert_read_errors(f"{folder / self.name}: not states"):
            return unflatten(arrays)


REPLAY_JOB = JsonFile("job.json", ReplayJob)
#: The states from which the leading backend continues.
START = StatesFile("start.safetensors")
#: The states before each replayed update.
STATES = StatesFile("states.safetensors")


def job_folder(folder: Path, backend: str) -> Path:
    """Return the folder, in the replay's folder, of a backend's job and of its processes'
    output."""
    return folder / f"{backend}.job"


def write_replay(
    folder: Path, backend: str, rank: int, arrays: Arrays, widths: Mapping[str, float]
) -> None:
    """Write the result of one rank of a backend's replay, tensors and envelope widths by the same
    keys, to ``folder``/``backend``, which is made if needed."""
    place = folder / backend
    place.mkdir(parents=True, exist_ok=True)
    tensors, numbers = replay_files(rank)
    tensors.write(place, arrays)
    numbers.write(place, numbers.make_record({"widths": widths}))


def read_replay(folder: Path, backend: str, size: int) -> ReplayRecord:
    """Read the results of ranks 0 … ``size`` − 1 of a backend's replay from ``folder``/``backend``.

    Raises:
        UserError: a file is missing or damaged.
    """
    ranks, widths = [], []
    for rank in range(size):
        tensors, numbers = replay_files(rank)
        ranks.append(tensors.read(folder / backend))
        record = numbers.read(folder / backend)
        widths.append({key: math.inf if w is None else w for key, w in record.widths.items()})
    return ReplayRecord(backend, ranks, widths)


def replay_files(rank: int) -> tuple[TraceTensorFile, JsonFile[WidthsRecord]]:
    """Return the file types of a rank's tensors and widths."""
    return TraceTensorFile(f"rank{rank}.safetensors"), JsonFile(f"rank{rank}.json", WidthsRecord)
