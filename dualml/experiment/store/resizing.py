"""Conversion of a trial's checkpoints to another number of ranks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.arrays import Arrays
from dualml.common.errors import UserError
from dualml.common.files import read_bytes, write_bytes
from dualml.experiment.store.checkpoint import (
    Progress,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from dualml.experiment.store.records import MAX_FILE_BYTES, records_path

#: Maximum distance of replicated tensors from rank 0's, relative to the largest entry: they may
#: differ by rounding if each rank sums in another order.
MAX_REPLICA_DISTANCE = 1e-5
Loaded = tuple[Progress, Arrays, dict[str, Arrays], Arrays]


def load_checkpoints(trial: Path, ranks: int) -> list[Loaded]:
    """Load the checkpoints of ranks 0 … ``ranks`` − 1, if all were written after the same update.

    Returns:
        Checkpoints by rank, see `load_checkpoint`; empty if a rank has none or ranks are at
            different updates, so that the trial has to start again.

    Raises:
        UserError: a file is damaged.
    """
    there = [load_checkpoint(trial, rank) for rank in range(ranks)]
    loaded = [one for one in there if one is not None]
    steps = {one[0].step for one in loaded}
    return loaded if len(loaded) == ranks and len(steps) == 1 else []


def check_replicas(trial: Path, loaded: list[Loaded]) -> None:
    """Raise `UserError` unless weights and optimizer state of all ranks agree with rank 0's, up to
    `MAX_REPLICA_DISTANCE` relative to each array's largest element."""
    first = flatten_checkpoint(loaded[0])
    for rank, one in enumerate(loaded[1:], start=1):
        other = flatten_checkpoint(one)
        if other.keys() != first.keys():
            lost = min(other.keys() ^ first.keys())
            raise UserError(f"{trial}: ranks 0 and {rank} do not both have {lost}")
        for name, array in first.items():
            scale = np.abs(array).max(initial=1e-30)
            off = float(np.abs(array - other[name]).max(initial=0) / scale)
            if not off <= MAX_REPLICA_DISTANCE:
                raise UserError(
                    f"{trial}: {name} of rank {rank} is {off:.1e} apart from that of rank 0 "
                    f"(relative; at most {MAX_REPLICA_DISTANCE:g}): the ranks do not train one "
                    "model, and cannot go on with another number of them"
                )


def flatten_checkpoint(loaded: Loaded) -> dict[str, Any]:
    """Return weights (by name) and optimizer state (``SLOT/NAME``) of a checkpoint as one mapping,
    without trace and progress."""
    _, weights, state, _ = loaded
    slots = ((slot, name, a) for slot, named in state.items() for name, a in named.items())
    return {**weights, **{f"{slot}/{name}": a for slot, name, a in slots}}


def write_resized(trial: Path, loaded: list[Loaded], ranks: int) -> None:
    """Write checkpoints for the added ranks from the state of rank 0, and their records from rank
    1's losses; do nothing if ``ranks``, the new number of ranks, is not above the number of those
    loaded, which must be at least two otherwise.

    Surplus checkpoints stay until `remove_surplus`, so that an interruption in between leaves a
    trial that can resume with the old number of ranks.
    """
    progress, weights, state, trace = loaded[0]
    if ranks <= len(loaded):
        return
    other: Progress = loaded[1][0]  # of one that records losses alone, as new ranks do
    losses = read_bytes(records_path(trial, 1), MAX_FILE_BYTES)[: other.records]
    for rank in range(len(loaded), ranks):
        write_bytes(records_path(trial, rank), losses)
        own = dataclasses.replace(progress, records=len(losses), seen={}, best={}, confusion=[])
        save_checkpoint(trial, rank, own, weights, state, trace)


def copy_rank0_state(trial: Path, loaded: list[Loaded], ranks: int) -> None:
    """Overwrite weights and state in the checkpoints of ranks 1 … ``ranks`` − 1, as far as they are
    loaded, with rank 0's; their progress and trace stay."""
    _, weights, state, _ = loaded[0]
    for rank, (progress, _, _, trace) in enumerate(loaded[1:ranks], start=1):
        save_checkpoint(trial, rank, progress, weights, state, trace)


def remove_surplus(trial: Path, before: int, ranks: int) -> None:
    """Remove the checkpoints of ranks ``ranks`` … ``before`` − 1, which do not continue."""
    for rank in range(ranks, before):
        remove_checkpoint(trial, rank)
