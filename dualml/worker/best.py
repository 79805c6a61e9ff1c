"""The weights of the smallest validation loss of a trial, kept while it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dualml.backend import Arrays
from dualml.errors import UserError
from dualml.files import finite
from dualml.store.best import NAME, Best, read_best, remove_best, write_best
from dualml.worker.evaluate import Score


class Keeper:
    """Keeps them in memory until the next checkpoint, so that file and checkpoint agree.

    Attributes:
        facts: what is known of them, as `store.best.Best`; empty before the first evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self.waiting: Arrays | None = None

    def offer(
        self, step: int, validation: Score, test: Score, weights: Callable[[], Arrays]
    ) -> None:
        """An evaluation after update ``step``. The test set is scored at each of them, so that the
        score of the weights that are kept is the one of theirs: it takes no part in the choice."""
        if not validation.loss < self.facts.get("validation_loss", math.inf):
            return
        self.waiting = weights()
        facts = {
            "step": step,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            "test_loss": test.loss,
            "test_accuracy": test.accuracy,
            "confusion": [] if test.confusion is None else test.confusion.tolist(),
        }
        self.facts = finite(facts)

    def write(self) -> None:
        """Put them on disk, if the file has others."""
        if self.waiting is not None:
            write_best(self.folder, Best.model_validate(self.facts), self.waiting)
            self.waiting = None

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Those of a checkpoint.

        Raises:
            UserError: the file has others: the trial was ended between it and the checkpoint.
        """
        if facts and ((there := read_best(self.folder)) is None or there.describe() != facts):
            raise UserError(f"{self.folder / NAME} is not that of the checkpoint")
        self.facts, self.waiting = dict(facts), None

    def forget(self) -> None:
        self.facts, self.waiting = {}, None
        remove_best(self.folder)
