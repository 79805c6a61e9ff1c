"""Training methods on several ranks whose samples come from the engine's own loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.parts import slice_lengths
from dualml.backend import Array, Backend
from dualml.experiment.methods.engine import EngineDataParallel, MethodTraining


class EngineLoaderParallel(EngineDataParallel):
    """A training method that receives global batches; its engine's loader takes this rank's part.

    Attributes:
        loaded_samples: update → samples that the loader gave this rank in the last `run_steps`.
    """

    def __init__(self, backend: Backend, training: MethodTraining, comm: Communicator) -> None:
        super().__init__(backend, training, comm)
        self.loaded_samples: dict[int, Array] = {}

    def run_steps(self, batches: Sequence[Any], first: int) -> list[Any]:
        """Make an update for each global batch, a list of one part per rank, from number ``first``
        on; return for each this rank's lazy loss and its share of the batch. The parts are joined,
        and the engine's loader divides them anew."""
        whole, lazy = [np.concatenate(batch) for batch in batches], list[Any]()
        full = self.training.prepared
        for step, batch in enumerate(whole, start=first):  # all ranks alike, before one waits
            self.check_parts(slice_lengths(len(batch), self.comm.size, full), step)
        self.loaded_samples = {}
        made = self.training.steps_from_loader(whole, first)
        for batch, (part, loss) in zip(whole, made, strict=True):
            self.step_count = first + len(lazy)
            self.loaded_samples[self.step_count] = part
            lazy.append((loss, len(part) / len(batch)))
        return lazy

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Make one update by `run_steps`; return this rank's lazy loss and its share of the
        batch."""
        loss, share = self.run_steps([batch], step)[0]
        return loss, share


def make_data_parallel(
    backend: Backend, training: MethodTraining, comm: Communicator
) -> EngineDataParallel:
    """Make the training of a method on one of several ranks.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """
    return (EngineLoaderParallel if training.prepared else EngineDataParallel)(
        backend, training, comm
    )
