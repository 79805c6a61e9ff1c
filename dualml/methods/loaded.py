"""Training methods on several ranks whose samples come from the engine's own loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.backend import Array, Backend
from dualml.communicator import Communicator
from dualml.communicator.parts import slices_of
from dualml.methods.driven import Driven, MethodTraining


class Loaded(Driven):
    """A training method that receives global batches; its engine's loader takes this rank's part.

    Attributes:
        loaded_samples: update → samples that the loader gave this rank in the last `run_steps`.
    """

    def __init__(self, backend: Backend, training: MethodTraining, comm: Communicator) -> None:
        super().__init__(backend, training, comm)
        self.taken: dict[int, Array] = {}

    def stretch(self, batches: Sequence[Any], first: int) -> list[Any]:
        whole, lazy = [np.concatenate(batch) for batch in batches], list[Any]()
        full = self.training.prepared
        for step, batch in enumerate(whole, start=first):  # all ranks alike, before one waits
            self.check_parts(slices_of(len(batch), self.comm.size, full), step)
        self.taken = {}
        made = self.training.loaded(whole, first)
        for batch, (part, loss) in zip(whole, made, strict=True):
            self.now = first + len(lazy)
            self.taken[self.now] = part
            lazy.append((loss, len(part) / len(batch)))
        return lazy

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        loss, share = self.stretch([batch], step)[0]
        return loss, share


def drive(backend: Backend, training: MethodTraining, comm: Communicator) -> Driven:
    """Make the training of a method on one of several ranks.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """
    return (Loaded if training.prepared else Driven)(backend, training, comm)
