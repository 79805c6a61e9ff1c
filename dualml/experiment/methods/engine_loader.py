"""Training methods on several ranks whose samples come from the engine's own loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.parts import slice_lengths
from dualml.backend import Array, Backend
from dualml.experiment.methods.engine import EngineDataParallel, MethodTraining
from dualml.experiment.methods.registry import MethodInfo
from dualml.parallel.batch import Batch, join_parts


class EngineLoaderParallel(EngineDataParallel):
    """A training method that receives global batches; its engine's loader takes this rank's part.

    Attributes:
        loaded_samples: update → samples that the loader gave this rank in the last window.
    """

    makes_updates = False
    distributes_samples = True
    loaded_samples: dict[int, Array]

    def make_whole_updates(self, batches: Sequence[Batch], first: int) -> list[tuple[Any, float]]:
        """Make an update for each global batch, a list of one part per rank, the first with number
        ``first``. The parts are joined, and the engine's loader divides them anew. Return for each
        (this rank's lazy loss, its share of the batch); raise `TrialError` if a rank would have no
        samples."""
        whole, lazy = [join_parts(batch) for batch in batches], list[Any]()
        full = self.model.full_batch_size
        for step, batch in enumerate(whole, start=first):  # all ranks alike, before one waits
            self.check_parts(slice_lengths(len(batch), self.size, full), step)
        self.loaded_samples = {}
        made = self.model.steps_from_loader(whole, first)
        for step, (batch, (part, loss)) in enumerate(zip(whole, made, strict=True), start=first):
            self.loaded_samples[step] = part
            lazy.append((loss, len(part) / len(batch)))
        return lazy

    def trained_part(self, batch: Sequence[Array], step: int) -> Array:
        """Return the samples that the loader gave this rank in update ``step`` of the last window;
        ``batch`` is ignored."""
        return self.loaded_samples[step]


def make_data_parallel(
    backend: Backend, model: MethodTraining, comm: Communicator, info: MethodInfo | None = None
) -> EngineDataParallel:
    """Make the trainer of a method on one of several ranks.

    Raises:
        TrialError: the engine is in another group than the ranks of the trial.
    """
    kind = EngineLoaderParallel if model.full_batch_size else EngineDataParallel
    return kind(backend, model, comm, info)
