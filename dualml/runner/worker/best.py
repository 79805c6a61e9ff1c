"""Track the weights with the smallest validation loss of a trial."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dualml.backend import Arrays
from dualml.common.errors import UserError
from dualml.common.files import nonfinite_to_none
from dualml.common.json_types import JsonMapping
from dualml.experiment.store.best import NAME, BestRecord, read_best, remove_best, write_best
from dualml.runner.worker.evaluate import Score


class BestCheckpoint:
    """The weights with the smallest validation loss so far, kept in memory until the next
    checkpoint so that the file and the checkpoint agree.

    Attributes:
        facts: update and metrics of these weights, as in `store.best.BestRecord`; empty before the
            first evaluation.
        pending_weights: weights that are not on disk yet; None if there are none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self.pending_weights: Arrays | None = None

    def is_improved_by(self, validation: Score) -> bool:
        """Return whether a score's loss is smaller than any before; NaN never is."""
        least: float = self.facts.get("validation_loss", math.inf)
        return validation.loss < least

    def update(self, step: int, validation: Score, test: Score, weights: Arrays) -> None:
        """Keep the weights after update ``step``, for which `is_improved_by` is true.

        The test set is scored at every evaluation, so that the reported test score belongs to the
        kept weights; it takes no part in the choice.
        """
        self.pending_weights = weights
        facts = {
            "step": step,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            "test_loss": test.loss,
            "test_accuracy": test.accuracy,
            "confusion": [] if test.confusion is None else test.confusion.tolist(),
        }
        self.facts = nonfinite_to_none(facts)

    def write(self) -> None:
        """Write the weights and their metrics to disk if they changed since the last call."""
        if self.pending_weights is not None:
            write_best(self.folder, BestRecord.model_validate(self.facts), self.pending_weights)
            self.pending_weights = None

    def restore(self, facts: JsonMapping) -> None:
        """Restore the best-so-far metrics from a checkpoint, after checking that the file on disk
        belongs to them; empty ones mean that there was none. Weights are not loaded.

        Raises:
            UserError: the file holds other weights, because the trial was killed after it was
                written and before the checkpoint.
        """
        if facts and ((there := read_best(self.folder)) is None or there.describe() != facts):
            raise UserError(f"{self.folder / NAME} is not that of the checkpoint")
        self.facts, self.pending_weights = dict(facts), None

    def reset(self) -> None:
        """Discard the best weights, in memory and on disk."""
        self.facts, self.pending_weights = {}, None
        remove_best(self.folder)
