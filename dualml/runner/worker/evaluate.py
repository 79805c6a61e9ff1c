"""Evaluation in exact counts, on one rank or shared by all, with every sample counted once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.communicator.parts import part_start
from dualml.backend import Training, eval_batch_size, split_into_chunks

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """The result of evaluating a model on a set of samples.

    Attributes:
        loss: mean over the samples (for text, over all positions of all windows).
        hits, counts: correct predictions and samples per class; for text, of all positions.
        confusion: samples of each class (rows) by predicted class (columns); None for text.
    """

    loss: float
    hits: NDArray[np.int64]
    counts: NDArray[np.int64]
    confusion: NDArray[np.int64] | None = None

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, from 0 to 1."""
        return float(self.hits.sum() / self.counts.sum())

    @property
    def by_class(self) -> list[float | None]:
        """Accuracy per class, from 0 to 1; None for a class without samples. For text, a single
        element: the accuracy over all positions."""
        pairs = zip(self.hits.tolist(), self.counts.tolist(), strict=True)
        return [h / n if n else None for h, n in pairs]


def evaluate(
    training: Training,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    index: Index,
    classes: int,
    comm: Communicator | None = None,
    root: int | None = None,
) -> Score:
    """Evaluate the model on samples ``index`` of ``x``, ``y``; nothing is changed.

    With ``comm`` the ranks share the chunks that one rank would evaluate, and all get the score.
    Nothing is padded, and sums are made in the same order, so the score equals that of one rank to
    the last bit if all ranks hold the same model. ``classes`` is 0 for text: there every position
    of a window counts, and accuracy is not split by token.

    With ``root`` the ranks share the model: all of them process every chunk together, and rank
    ``root``, which alone needs the labels, counts.
    """
    pieces = [
        part for part, _ in split_into_chunks(index, eval_batch_size(y))
    ]  # a copy of few at a time
    ranks, rank = (1, 0) if comm is None or root is not None else (comm.size, comm.rank)
    counts_here = comm is None or root in (None, comm.rank)
    ends = [part_start(len(pieces), ranks, r) for r in range(ranks + 1)]
    rows = np.zeros((len(pieces), 1 + max(1, classes**2)))
    for i in range(ends[rank], ends[rank + 1]):
        part = pieces[i]
        loss, predicted = training.evaluate(x[part], y[part])
        if not counts_here:
            continue
        if classes:
            counts = np.bincount(y[part] * classes + predicted, minlength=classes**2)
        else:
            counts = np.array([(predicted == y[part]).sum()])
        rows[i] = [loss * len(part), *counts]
    if comm is not None and root is not None:
        rows = comm.numpy(comm.broadcast(comm.tensor(rows), root))
    elif comm is not None:
        rows = gather_rows(comm, rows, ends)
    total = rows.sum(axis=0)
    loss, counts = float(total[0]) / len(index), total[1:].astype(np.int64)
    if not classes:
        return Score(loss, counts, np.array([y[index].size]))
    confusion = counts.reshape(classes, classes)
    return Score(loss, confusion.diagonal().copy(), confusion.sum(axis=1), confusion)


def score_from_rows(rows: NDArray[np.float64], classes: int) -> Score:
    """Compute the score from rows (N, 3) that an engine's own test wrote: label, predicted class
    and loss of each sample."""
    labels, predicted = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    counts = np.bincount(labels * classes + predicted, minlength=classes**2)
    confusion = counts.reshape(classes, classes)
    hits, each = confusion.diagonal().copy(), confusion.sum(axis=1)
    return Score(float(rows[:, 2].mean()), hits, each, confusion)


def perplexity(loss: float) -> float:
    """Return exp(loss) of a mean loss in nat per token: the number of tokens among which the model
    is as good as guessing. Infinity from a loss of 700 on."""
    return math.exp(loss) if loss < 700 else math.inf


def gather_rows(comm: Communicator, rows: NDArray[Any], ends: list[int]) -> NDArray[Any]:
    """All-gather the rows, and take from each rank r those that it filled, ``ends[r]`` to
    ``ends[r + 1]`` (exclusive); all ranks call it."""
    ranks = [comm.numpy(part) for part in comm.all_gather(comm.tensor(rows))]
    return np.concatenate([part[ends[r] : ends[r + 1]] for r, part in enumerate(ranks)])
