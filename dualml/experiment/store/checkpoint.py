"""Checkpoints of a trial: one safetensors file per rank, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors.numpy import save

from dualml.common.arrays import Arrays, open_tensors
from dualml.common.files import convert_read_errors, remove_file, write_bytes
from dualml.common.parse import from_json
from dualml.experiment.store.jsonfile import Count

NAME = "checkpoint.safetensors"
FAULT = "not a readable checkpoint"


@dataclass(frozen=True)
class Progress:
    """Progress of a trial at a checkpoint.

    Updates made, seconds of training, bytes of records, SHA-256 of the traced batches and of all
    samples so far (see `dualml.experiment.sample_digest`), the confusion of the last evaluation,
    the results of the weights in ``best.safetensors``, the divergence of the ranks' weights at
    traced updates, the checks of `dualml.experiment.store.agreement`, and the number of samples
    that each rank trained on.
    """

    step: Count = 0
    seconds: float = 0.0
    records: Count = 0
    digests: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    confusion: list[list[int]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    apart: dict[str, list[float]] = field(default_factory=dict)
    agreement: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, Count] = field(default_factory=dict)


def parse_progress(metadata: Mapping[str, str], path: Path) -> Progress:
    """Return the progress that the metadata of the checkpoint file ``path`` hold; the file is not
    read.

    Raises:
        UserError: the metadata are not those of a checkpoint.
    """
    with convert_read_errors(f"{path}: {FAULT}"):
        text = metadata["progress"].encode()
        value = from_json(text)
        if not isinstance(value, dict):
            raise ValueError(f"progress: a table is expected; received {type(value).__name__}")
        Progress(**value)  # no other keys
        try:
            return TypeAdapter(Progress).validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"progress.{where}: {first['msg']}") from None


def checkpoint_path(trial: Path, rank: int) -> Path:
    """Return the path of a rank's checkpoint; rank 0's has no number in its name."""
    return trial / (f"rank{rank}.{NAME}" if rank else NAME)


def remove_checkpoint(trial: Path, rank: int) -> None:
    """Remove a rank's checkpoint, if there is one."""
    remove_file(checkpoint_path(trial, rank))


def save_checkpoint(
    trial: Path,
    rank: int,
    progress: Progress,
    weights: Arrays,
    state: Mapping[str, Arrays],
    trace: Arrays,
) -> None:
    """Save a rank's checkpoint in the trial's folder, in place of an earlier one; ``state`` is slot
    → name → array, ``trace`` the tensors captured so far."""
    tensors = {f"weights/{name}": w for name, w in weights.items()}
    for slot, named in state.items():
        tensors.update({f"state/{slot}/{name}": s for name, s in named.items()})
    tensors.update({f"trace/{key}": value for key, value in trace.items()})
    metadata = {"progress": json.dumps(asdict(progress))}
    write_bytes(checkpoint_path(trial, rank), save(tensors, metadata))


def load_checkpoint(
    trial: Path, rank: int
) -> tuple[Progress, Arrays, dict[str, Arrays], Arrays] | None:
    """Load a rank's progress, weights, optimizer state and trace; None if there is no checkpoint.

    Raises:
        UserError: the checkpoint is not readable.
    """
    path = checkpoint_path(trial, rank)
    if not path.exists():
        return None
    parts: dict[str, Arrays] = {"weights": {}, "trace": {}}
    state: dict[str, Arrays] = {}
    with open_tensors(path, FAULT) as file:
        progress = parse_progress(file.metadata(), path)
        for key in file.keys():  # noqa: SIM118 - not a dictionary
            kind, _, name = key.partition("/")
            if kind in parts:
                parts[kind][name] = file.get_tensor(key)
            else:
                slot, _, name = name.partition("/")
                state.setdefault(slot, {})[name] = file.get_tensor(key)
    return progress, parts["weights"], state, parts["trace"]
