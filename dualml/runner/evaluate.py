"""Evaluation in exact counts, by one rank or by all, without a sample twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import EVALUATED_AT_ONCE, Training, chunks
from dualml.communicator import Communicator
from dualml.communicator.parts import start_of

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """How a model does on a set of samples.

    Attributes:
        loss: mean over the samples.
        hits, counts: right answers and samples of each class.
    """

    loss: float
    hits: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.counts.sum())

    @property
    def by_class(self) -> list[float | None]:
        """Accuracy of each class; None where there is no sample of it."""
        pairs = zip(self.hits.tolist(), self.counts.tolist(), strict=True)
        return [h / n if n else None for h, n in pairs]


def evaluate(
    training: Training,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    index: Index,
    classes: int,
    comm: Communicator | None = None,
) -> Score:
    """The score on samples ``index`` of ``x``, ``y``.

    With ``comm`` every rank takes some of the pieces that one rank would take, and all get the
    score: nothing is padded, and the sums are made in the same order, so that it is the score of
    one rank to the last bit if all ranks hold the same model.
    """
    pieces = [part for part, _ in chunks(index, EVALUATED_AT_ONCE)]  # a copy of few at a time
    ranks, rank = (1, 0) if comm is None else (comm.size, comm.rank)
    ends = [start_of(len(pieces), ranks, r) for r in range(ranks + 1)]
    rows = np.zeros((len(pieces), 1 + classes))
    for i in range(ends[rank], ends[rank + 1]):
        part = pieces[i]
        loss, predicted = training.evaluate(x[part], y[part])
        right = y[part][predicted == y[part]]
        rows[i] = [loss * len(part), *np.bincount(right, minlength=classes)]
    if comm is not None:
        rows = together(comm, rows, ends)
    counts = np.bincount(y[index], minlength=classes)
    total = rows.sum(axis=0)
    return Score(float(total[0]) / len(index), total[1:].astype(np.int64), counts)


def together(comm: Communicator, rows: NDArray[Any], ends: list[int]) -> NDArray[Any]:
    """The rows of all ranks, those of each from where its pieces are."""
    found = [comm.numpy(part) for part in comm.all_gather(comm.tensor(rows))]
    mine = [part[ends[r] : ends[r + 1]] for r, part in enumerate(found)]
    return np.concatenate(mine)
