"""Resume a training from a checkpoint of any layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.algorithms.precision import SLOT
from dualml.backend import Arrays, Training
from dualml.common.errors import UserError, escape_unprintable
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.training import SplitTraining
from dualml.runner.checkpoint.kinds import Array
from dualml.runner.checkpoint.slices import piece_boxes
from dualml.runner.checkpoint.stored_checkpoint import Checkpoint
from dualml.runner.checkpoint.weights import strip_wrapper


def restore(training: Training, checkpoint: Checkpoint) -> int:
    """Load weights and optimizer state into a training; for a split model only this rank's part.
    All ranks call it, as those of a sharded model communicate.

    Returns:
        The number of updates already made; 0 if the checkpoint does not say and has no optimizer
        state.

    Raises:
        UserError: the checkpoint belongs to another model or optimizer, names its weights other
            than ``weights/NAME``, lacks a state that the optimizer has, or has an optimizer state
            but no step.
    """
    split = training if isinstance(training, SplitTraining) else None
    shapes = split.shapes if split else {n: w.shape for n, w in training.weights().items()}
    checkpoint = strip_wrapper(checkpoint, shapes)
    weights, state = checkpoint.with_prefix("weights/"), checkpoint.with_prefix("state/")
    weights.check_model(shapes, "the one that is trained")
    pieces = (
        split.pieces[split.comm.rank] if split else {n: TensorShard(s) for n, s in shapes.items()}
    )
    own = split.executor.state() if split else training.state()
    slots: dict[str, dict[str, TensorShard]] = {}
    for key, tensor in state.tensors.items():
        slot, _, name = key.partition("/")
        if name in pieces or slot == SLOT:
            slots.setdefault(slot, {})[name] = pieces.get(name, TensorShard(tensor.shape))
    check_slots(checkpoint, own, slots)
    if checkpoint.step is None and state.tensors:
        raise UserError(
            f"{checkpoint.path} has the optimizer's state and does not say after how many updates "
            f"(as {checkpoint.format} need not): restore from the checkpoint it was converted from"
        )
    step = checkpoint.step or 0
    values = {n: read_part(weights, n, piece) for n, piece in pieces.items()}
    slices = {
        s: {n: read_part(state, f"{s}/{n}", p) for n, p in v.items()} for s, v in slots.items()
    }
    if split is None:
        training.load(values, slices, step)
    else:
        split.executor.load(values, split.pop_scaler_state(slices), split.applied_steps(step))
        split.step_count = step
    return step


def check_slots(
    checkpoint: Checkpoint, own: Mapping[str, Arrays], slots: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise `UserError` where the optimizer state of the training (``own``, slot → parameter →
    array) has other slots than that of the checkpoint (``slots``), or the checkpoint lacks a
    parameter in one. A rank without parameters may have none."""
    here, there = own.keys() - {SLOT}, slots.keys() - {SLOT}
    if any(own.values()) and here != there:
        raise UserError(
            f"{checkpoint.path} has the optimizer's state {', '.join(sorted(there)) or 'of none'}; "
            f"the one that is used has {', '.join(sorted(here)) or 'none'}: it is of another "
            "optimizer"
        )
    for slot in here & there:
        if lost := own[slot].keys() - slots[slot].keys():
            raise UserError(f"{checkpoint.path} has no {slot} of {escape_unprintable(min(lost))}")


def read_part(checkpoint: Checkpoint, name: str, piece: TensorShard) -> Array:
    """Read the part ``piece`` of the tensor ``name`` that a rank holds, and nothing else of the
    tensor."""
    parts = [checkpoint.read(name, box.slices) for box in piece_boxes(piece)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, piece.axis)
