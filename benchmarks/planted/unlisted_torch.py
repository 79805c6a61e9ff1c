"""Mistakes that no cause of the finder lists, in PyTorch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from dualml_torch.algorithms import training
from dualml_torch.algorithms.optim import OPTIMIZERS
from dualml_torch.parallel.split import TorchStage
from planted.unlisted_neutral import RANKS, double_last_micro_batch
from planted.unlisted_rules import RULES

Training = training.TorchTraining


def replace_rule(name: str) -> None:
    """Compute a rule's update by the function of this plant, tensor by tensor."""
    rule, formula = RULES[name]
    kind = OPTIMIZERS[rule]

    def update(
        p: Any, g: Any, state: Any, group: Any, lr: float, step: int, *, workspace: Any
    ) -> None:
        for i, parameter in enumerate(p):
            slots = {key: tensors[i] for key, tensors in state.items()}
            new, after = formula(SimpleNamespace(**group), parameter, g[i], slots, step, lr)
            parameter.copy_(new)
            for key, tensor in after.items():
                slots[key].copy_(tensor)

    kind.is_one_operation = staticmethod(lambda group: True)  # neither compiled nor in blocks
    kind.coefficients = staticmethod(lambda group, step: (float(group["lr"]), step))
    kind.update = staticmethod(update)


def leave_out_last_layer(name: str) -> None:
    """Keep the last layer's weights in every second update."""
    right = Training.update

    def update(self: Any, step: int) -> None:
        last = list(self.parameters.values())[-2:]
        old = [p.detach().clone() for p in last]
        right(self, step)
        if step % 2 == 0:
            with torch.no_grad():
                for p, value in zip(last, old, strict=True):
                    p.copy_(value)

    Training.update = update


def slow_last_layer(name: str) -> None:
    """Give the last layer a tenth of the rate, in a parameter group of its own."""

    def optimizer(rule: Any, parameters: Any, **how: Any) -> Any:
        made = right(rule, parameters, **how)
        group = made.param_groups[0]
        last, group["params"] = group["params"][-2:], group["params"][:-2]
        made.add_param_group({"params": last, "lr": rule.lr / 10})
        return made

    right = training.optimizer
    training.optimizer = optimizer


def double_gradient(name: str) -> None:
    """Double the gradient of the second layer's weight."""
    right = Training.backward

    def backward(self: Any, part: Any, share: float) -> Any:
        loss = right(self, part, share)
        self.parameters["fc2.weight"].grad.mul_(2)
        return loss

    Training.backward = backward


UNLISTED = {
    **dict.fromkeys(RULES, replace_rule),
    **RANKS,
    "last-micro-batch-twice": double_last_micro_batch(TorchStage),
    "last-layer-every-second": leave_out_last_layer,
    "last-layer-slower": slow_last_layer,
    "one-tensor-twice": double_gradient,
}
