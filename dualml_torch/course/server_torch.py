"""Parameter server: several trainers on one table of word vectors, by messages, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class ParameterServer:
    """Training with a parameter server: rank 0 has all parameters, the other ranks train.

    Rank 0 calls ``serve`` while every other rank, a trainer, calls ``train``; together that is one
    update.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.exchange(send, receive)``.
        lr: the learning rate η.
        width: D, numbers of a word vector.
        count: K, number of the other weights.
    """

    def __init__(self, comm: Any, lr: float, width: int, count: int) -> None:
        self.comm, self.lr, self.width, self.count = comm, lr, width, count

    def serve(self, table: Tensor, weights: Tensor, n: int) -> None:
        """One update on rank 0: give every trainer the rows that it asks for and the weights,
        receive its gradients, and change table and weights once, in place.

        Args:
            table: (V, D) float32, a row for each word.
            weights: (K,) float32.
            n: number of words that each trainer asks for.
        """
        # solution: begin
        trainers = range(1, self.comm.size)
        words = self.comm.exchange({}, {r: torch.empty(n, dtype=torch.int64) for r in trainers})
        rows = {r: torch.cat([table[words[r]].flatten(), weights]) for r in trainers}
        self.comm.exchange(rows, {})
        came = self.comm.exchange({}, {r: torch.empty_like(rows[r]) for r in trainers})
        table_gradient, gradient = torch.zeros_like(table), torch.zeros_like(weights)
        for r in trainers:
            of_rows, of_weights = came[r].split([n * self.width, self.count])
            table_gradient.index_add_(0, words[r], of_rows.view(n, self.width))
            gradient += of_weights
        table -= self.lr * table_gradient / len(trainers)
        weights -= self.lr * gradient / len(trainers)
        # solution: end

    def train(
        self, model: Callable[[Tensor, Tensor], tuple[float, Tensor, Tensor]], words: Tensor
    ) -> float:
        """One update on a trainer: ask the server for rows and weights, and send it their
        gradients; the loss.

        Args:
            model: (rows (n, D), weights (K,)) → loss, its gradients for the rows (n, D) and for
                the weights (K,).
            words: (n,) int64, numbers of rows; a word may be in it several times.
        """
        # solution: begin
        n = len(words)
        self.comm.exchange({0: words}, {})
        like = torch.empty(n * self.width + self.count)
        rows, weights = self.comm.exchange({}, {0: like})[0].split([n * self.width, self.count])
        loss, of_rows, of_weights = model(rows.view(n, self.width), weights)
        self.comm.exchange({0: torch.cat([of_rows.flatten(), of_weights])}, {})
        return loss
        # solution: end
