"""Arms whose model carries its state over batches: what they support, and their sample order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.streams import stream_indices
from dualml.common.errors import UserError, prefix_errors
from dualml.experiment.arm import Arm
from dualml.experiment.plan import streams_key

#: Setting → why state carried over batches excludes it, and the alternative.
REASONS = {
    "partition": "a partition assigns windows out of order, and the state is carried from one "
    "window to the next; leave out partition",
    "samples": "a state goes on through the whole text, of which samples draws windows; leave "
    "samples out, or lower data.train",
    "method": "a method of a framework begins every batch with a state of zeros; leave out method",
    "ranks": "ranks that share a batch would each have the states of their own streams, which no "
    "strategy puts together; use split, or world_size = 1",
    "zero": "zero and offload go through a model unit by unit, which carries no state; leave them "
    "out",
    "recompute": "what is computed again would begin with another state; leave out recompute",
    "precision": "states are carried in float32; leave out precision",
    "batch_size": "the batch is as many streams as batch_size, and the whole training set in one "
    "batch has no next one; set batch_size",
    "chunk": "a batch goes through at once; raise accumulation_batch to batch_size, or lower "
    "batch_size",
    "asynchronous": "the server updates with every trainer's part of a batch by itself; use "
    "update_mode = synchronous",
}


def check_stateful(arm: Arm) -> None:
    """Raise `UserError` for an arm whose model carries its state over batches and cannot be trained
    with the arm's settings; the text has the reason."""
    asked = {
        "partition": bool(arm.partition),
        "samples": bool(arm.samples),
        "method": bool(arm.method),
        "zero": bool(arm.zero) or arm.offload is not None,
        "ranks": arm.world_size > 1 and arm.split is None,
        "recompute": arm.recompute != "none",
        "precision": arm.plan_precision.is_low,
        "batch_size": not arm.batch_size,
        "chunk": arm.batch_size > arm.chunk and arm.split is None,
        "asynchronous": arm.split is not None and arm.split.arrival == "asynchronous",
    }
    for key, wrong in asked.items():
        if wrong:
            raise UserError(f"recurrent.stateful = true: {REASONS[key]}")


def freeze_streams(
    name: str, arm: Arm, seed: int, samples: int, order: dict[str, NDArray[np.int32]]
) -> None:
    """Add the order of a stateful arm's samples, the same in each epoch, to ``order`` in place
    under `streams_key`.

    Args:
        name: name of the arm, for messages.
        samples: number of samples of the training set, which are consecutive in the text.

    Raises:
        UserError: there are more streams than samples; the text names the arm.
    """
    with prefix_errors(f"arms.{name}"):
        order[streams_key(arm, seed)] = stream_indices(samples, arm.batch_size).reshape(-1)
