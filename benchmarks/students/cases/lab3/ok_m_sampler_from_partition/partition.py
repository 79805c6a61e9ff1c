"""Lab 3: which samples each rank trains on."""

from __future__ import annotations

from typing import Any

import numpy as np


def random_sampling(n: int, ranks: int, rank: int, seed: int, epoch: int) -> Any:
    """The samples that one rank draws in one epoch: n/ranks of n, with replacement.

    Every rank draws from all samples, for itself, and anew in every epoch.

    Args:
        n: how many samples there are.
        ranks: how many ranks share them.
        rank: which one this is, from 0.
        seed: of the whole run.
        epoch: from 0.

    Returns:
        integers from 0 to n − 1. The sizes of the ranks differ by one at most and add up to n.
    """
    # your code: begin
    size = n // ranks + (1 if rank < n % ranks else 0)
    rng = np.random.default_rng([seed, epoch, rank, 1])
    return rng.integers(0, n, size)
    # your code: end


def random_partition(n: int, ranks: int, rank: int, seed: int, epoch: int) -> Any:
    """The samples of one rank in the order in which it goes through them in one epoch.

    One random permutation of all samples is cut into nearly equal parts. A rank keeps its part in
    every epoch, but goes through it in a new random order.

    Args:
        n: how many samples there are.
        ranks: how many ranks share them.
        rank: which one this is, from 0.
        seed: of the whole run.
        epoch: from 0.

    Returns:
        integers from 0 to n − 1; over all ranks every sample once. The sizes of the ranks differ by
        one at most.
    """
    # your code: begin
    sigma = np.random.default_rng([seed, 2]).permutation(n)
    mine = np.array_split(sigma, ranks)[rank]
    rng = np.random.default_rng([seed, epoch, rank, 3])
    return rng.permutation(mine)
    # your code: end


def label_skew(labels: Any, ranks: int, alpha: float, seed: int) -> list[Any]:
    """Parts in which the labels are skewed: for each label y, p_y ~ Dir(α, …, α), and rank r gets
    about the share p_y[r] of the samples with label y.

    Small α: nearly all samples of a label are with one rank; large α: equal shares.

    Args:
        labels: integers (n,); any numbers.
        ranks: how many ranks there are.
        alpha: α > 0.
        seed: of the whole run.

    Returns:
        one array of integers for each rank, of any size; together every sample from 0 to n − 1
        once. Which samples of a label go to which rank is random.
    """
    # your code: begin
    labels = np.asarray(labels)
    rng = np.random.default_rng([seed, 4])
    parts = [[] for _ in range(ranks)]
    for y in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == y))
        p = rng.dirichlet([alpha] * ranks)
        cuts = np.round(np.cumsum(p)[:-1] * len(members)).astype(int)
        for r, piece in enumerate(np.split(members, cuts)):
            parts[r].append(piece)
    return [np.concatenate(part) for part in parts]
    # your code: end
