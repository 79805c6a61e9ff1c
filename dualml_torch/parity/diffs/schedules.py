"""Probes of learning-rate schedules in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import lr_scheduler


def measure_rates(
    make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler],
    epochs: int = 8,
    batches: int = 1,
) -> NDArray:
    """Return the step sizes, the rates, of ``epochs`` times ``batches`` updates of SGD from a rate
    of 0.1; the scheduler that ``make`` returns steps once per epoch."""
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler, places = make(optimizer), [0.0]
    for _ in range(epochs):
        for _ in range(batches):
            weight.grad = torch.ones(())
            optimizer.step()
            places.append(weight.item())
        scheduler.step()
    return -np.diff(places)


def schedule_counter() -> NDArray:
    """Run the probe "Who counts the steps of a schedule" in PyTorch and return the rate of each
    update. The rate changes when the user calls `scheduler.step()`, often once in an epoch."""
    return measure_rates(
        lambda sgd: lr_scheduler.ExponentialLR(sgd, gamma=0.5), epochs=4, batches=2
    )


def schedule_list_too_short() -> NDArray:
    """Run the probe "After the end of a list of rates" in PyTorch and return the rate of each
    update. A scheduler keeps its last rate."""
    return measure_rates(lambda sgd: lr_scheduler.MultiStepLR(sgd, milestones=[2, 4]), epochs=6)


def cosine_decay() -> NDArray:
    """Run the probe "Cosine decay by steps or by epochs" in PyTorch and return the rate of each
    update. `CosineAnnealingLR`, stepped after each batch, falls a little with each batch."""
    return measure_rates(lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=8))


def cosine_past_end() -> NDArray:
    """Run the probe "Cosine decay after its end" in PyTorch and return the rate of each update.
    `CosineAnnealingLR` climbs again after `T_max` steps."""
    return measure_rates(lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=4))


def exponential_decay() -> NDArray:
    """Run the probe "Exponential decay within an epoch" in PyTorch and return the rate of each
    update. `ExponentialLR`, stepped once in an epoch, keeps the rate within it."""
    return measure_rates(
        lambda sgd: lr_scheduler.ExponentialLR(sgd, gamma=0.5), epochs=4, batches=2
    )


def warmup() -> NDArray:
    """Run the probe "Where warm-up starts" in PyTorch and return the rate of each update.
    `LinearLR` starts at a third of the rate (`start_factor`)."""
    return measure_rates(lambda sgd: lr_scheduler.LinearLR(sgd, total_iters=4))


def step_decay() -> NDArray:
    """Run the probe "What milestones count" in PyTorch and return the rate of each update.
    `MultiStepLR` counts calls of `scheduler.step()`, usually epochs; the milestone itself has the
    new rate."""
    return measure_rates(
        lambda sgd: lr_scheduler.MultiStepLR(sgd, milestones=[1, 2]), epochs=3, batches=2
    )


def polynomial_decay() -> NDArray:
    """Run the probe "Polynomial decay" in PyTorch and return the rate of each update.
    `PolynomialLR(total_iters=…, power=…)` ends at 0."""
    return measure_rates(lambda sgd: lr_scheduler.PolynomialLR(sgd, total_iters=4, power=2.0))


def experimental_schedulers() -> dict[str, NDArray]:
    """Run the probe "`experimental.optim.lr_scheduler`" in PyTorch and return scheduler → rate of
    each update. `CosineAnnealingLR`, `LinearLR`, `MultiStepLR`, `CosineAnnealingWarmRestarts`."""
    return {
        "cosine": measure_rates(lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=4)),
        "linear": measure_rates(lambda sgd: lr_scheduler.LinearLR(sgd)),
        "steps": measure_rates(lambda sgd: lr_scheduler.MultiStepLR(sgd, milestones=[2, 4])),
        "restarts": measure_rates(lambda sgd: lr_scheduler.CosineAnnealingWarmRestarts(sgd, T_0=3)),
    }


def scheduler_optimizer() -> float:
    """Run the probe "A scheduler object for an `nn` optimizer" in PyTorch and return the rate after
    one step. Any scheduler takes any optimizer."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    return optimizer.param_groups[0]["lr"]


def lr_change() -> NDArray:
    """Run the probe "Changing the rate by hand" in PyTorch and return the weight after two steps.
    `optimizer.param_groups[0]['lr'] = …` holds from the next step."""
    weight = nn.Parameter(torch.tensor(0.0))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.tensor(1.0)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    return weight.detach().numpy()


def lr_group() -> dict[str, NDArray]:
    """Run the probe "A schedule and a group with its own rate" in PyTorch and return how far
    ``body`` and ``head`` moved in three steps. A scheduler changes the rate of every group, in
    proportion."""
    body, head = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD([{"params": [body], "lr": 0.01}, {"params": [head]}], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for _ in range(3):
        body.grad, head.grad = torch.tensor(1.0), torch.tensor(1.0)
        optimizer.step()
        scheduler.step()
    return {"body": 1 - body.detach().numpy(), "head": 1 - head.detach().numpy()}
