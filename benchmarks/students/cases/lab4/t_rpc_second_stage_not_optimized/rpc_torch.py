"""Lab 4: a model whose halves live on other ranks, driven by remote procedure calls, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import Tensor
from torch.distributed.optim import DistributedOptimizer


def references(stage: Any) -> list[Any]:
    """References to the parameters of a stage; runs on the rank that holds it.

    Args:
        stage: an `RRef` to a `torch.nn.Module` of this rank.
    """
    # your code: begin
    return [rpc.RRef(p) for p in stage.local_value().parameters()]
    # your code: end


class RpcPipeline:
    """Two stages on two other ranks; this rank has neither, and makes the updates.

    Args:
        stages: two `RRef`s to `torch.nn.Module`s, each owned by a rank of its own.
        optimizer: class of the optimizer that each rank makes for its own parameters.
        lr: its learning rate.
    """

    def __init__(self, stages: Sequence[Any], optimizer: Any, lr: float) -> None:
        self.stages = stages
        # your code: begin
        first = stages[0]
        params = rpc.rpc_sync(first.owner(), references, args=(first,))
        self.optimizer = DistributedOptimizer(optimizer, params, lr=lr)
        # your code: end

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the whole model; each stage computes where it is."""
        # your code: begin
        h = self.stages[0].rpc_sync().forward(x)
        return self.stages[1].rpc_sync().forward(h)
        # your code: end

    def step(self, loss_fn: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> float:
        """One update of both stages; the loss before it.

        The backward pass goes through the ranks in a context of distributed autograd, which keeps
        the gradients where the parameters are; the distributed optimizer takes them from there.
        """
        # your code: begin
        with dist_autograd.context() as context:
            loss = loss_fn(self.forward(x), y)
            dist_autograd.backward(context, [loss])
            self.optimizer.step(context)
        return loss.item()
        # your code: end
