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
    # solution: begin
    return [rpc.RRef(parameter) for parameter in stage.local_value().parameters()]
    # solution: end


class RpcPipeline:
    """Two stages on two other ranks; this rank has neither, and makes the updates.

    Args:
        stages: two `RRef`s to `torch.nn.Module`s, each owned by a rank of its own.
        optimizer: class of the optimizer that each rank makes for its own parameters.
        lr: its learning rate.
    """

    def __init__(self, stages: Sequence[Any], optimizer: Any, lr: float) -> None:
        self.stages = stages
        # solution: begin
        parameters = []
        for stage in stages:
            parameters += rpc.rpc_sync(stage.owner(), references, args=(stage,))
        self.optimizer = DistributedOptimizer(optimizer, parameters, lr=lr)
        # solution: end

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the whole model; each stage computes where it is."""
        # solution: begin
        first, second = self.stages
        return second.rpc_sync().forward(first.rpc_sync().forward(x))
        # solution: end

    def step(self, loss_fn: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> float:
        """One update of both stages; the loss before it.

        The backward pass goes through the ranks in a context of distributed autograd, which keeps
        the gradients where the parameters are; the distributed optimizer takes them from there.
        """
        # solution: begin
        with dist_autograd.context() as context:
            loss = loss_fn(self.forward(x), y)
            dist_autograd.backward(context, [loss])
            self.optimizer.step(context)
            return loss.item()
        # solution: end
