"""Parameter server: a language model whose tables live on a server, by remote procedure calls, in
PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import Tensor, nn
from torch.distributed.optim import DistributedOptimizer


def references(module: Any) -> list[Any]:
    """References to the parameters of a module; runs on the rank that holds it.

    Args:
        module: an `RRef` to a `torch.nn.Module` of this rank.
    """
    # solution: begin
    return [rpc.RRef(parameter) for parameter in module.local_value().parameters()]
    # solution: end


class RemoteModel:
    """A recurrent language model; runs on the trainer, and trains what is on the server, too.

    Args:
        embedding: an `RRef` to a module of the server: (batch, time) word numbers → (batch, time,
            width) word vectors.
        rnn: a module of this rank: (time, batch, width) vectors, (batch, hidden) state before them
            → (time, batch, hidden) outputs, (batch, hidden) state after them.
        decoder: an `RRef` to a module of the server: (…, hidden) outputs → (…, words) logits.
        optimizer: class of the optimizer that each rank makes for its own parameters; it has
            momentum.
        lr: its learning rate.
    """

    def __init__(self, embedding: Any, rnn: nn.Module, decoder: Any, optimizer: Any, lr: float):
        self.embedding, self.rnn, self.decoder = embedding, rnn, decoder
        # solution: begin
        parameters = [rpc.RRef(parameter) for parameter in rnn.parameters()]
        for module in (embedding, decoder):
            parameters += rpc.rpc_sync(module.owner(), references, args=(module,))
        self.optimizer = DistributedOptimizer(optimizer, parameters, lr=lr)
        # solution: end

    def forward(self, words: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The logits (batch, time, words), and the state after the last word.

        Args:
            words: (batch, time) word numbers.
            hidden: (batch, hidden) state before the first word.
        """
        # solution: begin
        vectors = self.embedding.rpc_sync().forward(words)
        outputs, hidden = self.rnn(vectors.transpose(0, 1), hidden)
        return self.decoder.rpc_sync().forward(outputs.transpose(0, 1)), hidden
        # solution: end

    def step(
        self, loss_fn: Callable[[Tensor, Tensor], Tensor], words: Tensor, y: Tensor, hidden: Tensor
    ) -> tuple[float, Tensor]:
        """One update of everything; the loss before it, and the state with which the next window of
        the same text begins.

        Args:
            loss_fn: (N, words) logits, (N,) word numbers → mean loss.
            words, y: (batch, time) word numbers, and the next word of each.
            hidden: (batch, hidden) state with which this window begins; no gradient flows further
                back.
        """
        # solution: begin
        with dist_autograd.context() as context:
            logits, hidden = self.forward(words, hidden.detach())
            loss = loss_fn(logits.flatten(0, 1), y.flatten())
            dist_autograd.backward(context, [loss])
            self.optimizer.step(context)
            return loss.item(), hidden
        # solution: end
