"""Probes of learning-rate schedules in MindSpore."""

from __future__ import annotations

import math
from collections.abc import Callable

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.experimental import optim
from mindspore.experimental.optim import lr_scheduler
from numpy.typing import NDArray


def parameter(value: float, name: str = "weight") -> ms.Parameter:
    return ms.Parameter(ms.Tensor(value), name=name)


def measure_rates(learning_rate: list[float] | nn.Cell, steps: int = 8) -> NDArray:
    """Return the step sizes of SGD."""
    weight = parameter(0.0)
    optimizer, places = nn.SGD([weight], learning_rate), [0.0]
    for _ in range(steps):
        optimizer((ms.Tensor(1.0),))
        places.append(float(weight.asnumpy()))
    return -np.diff(places)


def measure_experimental_rates(
    make: Callable[[optim.SGD], lr_scheduler.LRScheduler], steps: int = 8
) -> NDArray:
    """Return the step sizes of experimental SGD, whose scheduler steps after each step."""
    weight = parameter(0.0)
    optimizer, places = optim.SGD([weight], lr=0.1), [0.0]
    scheduler = make(optimizer)
    for _ in range(steps):
        optimizer((ms.Tensor(1.0),))
        places.append(float(weight.asnumpy()))
        scheduler.step()
    return -np.diff(places)


def schedule_counter() -> NDArray:
    return measure_rates([0.1 * 0.5**epoch for epoch in range(8)])


def schedule_counter_equal() -> NDArray:
    batches = 2
    return measure_rates([0.1 * 0.5 ** (step // batches) for step in range(8)])


def schedule_list_too_short() -> NDArray:
    return measure_rates(nn.piecewise_constant_lr([2, 4], [0.1, 0.01]), steps=6)


def schedule_list_too_short_equal() -> NDArray:
    return measure_rates(nn.piecewise_constant_lr([2, 4, 6], [0.1, 0.01, 0.001]), steps=6)


def cosine_decay() -> NDArray:
    return measure_rates(
        nn.cosine_decay_lr(0.0, 0.1, total_step=8, step_per_epoch=2, decay_epoch=4)
    )


def cosine_decay_equal() -> NDArray:
    return measure_rates(
        nn.cosine_decay_lr(0.0, 0.1, total_step=8, step_per_epoch=1, decay_epoch=8)
    )


def cosine_past_end() -> NDArray:
    return measure_rates(nn.CosineDecayLR(min_lr=0.0, max_lr=0.1, decay_steps=4))


def cosine_past_end_equal() -> NDArray:
    return measure_rates([0.05 * (1 + math.cos(math.pi * step / 4)) for step in range(8)])


def exponential_decay() -> NDArray:
    return measure_rates(nn.ExponentialDecayLR(0.1, decay_rate=0.5, decay_steps=2))


def exponential_decay_equal() -> NDArray:
    return measure_rates(nn.ExponentialDecayLR(0.1, decay_rate=0.5, decay_steps=2, is_stair=True))


def warmup() -> NDArray:
    return measure_rates(nn.WarmUpLR(0.1, warmup_steps=4))


def warmup_equal() -> NDArray:
    start = 1 / 3
    return measure_rates([0.1 * (start + (1 - start) * min(step, 4) / 4) for step in range(8)])


def step_decay() -> NDArray:
    return measure_rates(nn.piecewise_constant_lr([1, 2, 6], [0.1, 0.01, 0.001]), steps=6)


def step_decay_equal() -> NDArray:
    batches = 2
    milestones = [batches * epoch for epoch in (1, 2, 3)]
    return measure_rates(nn.piecewise_constant_lr(milestones, [0.1, 0.01, 0.001]), steps=6)


def polynomial_decay() -> NDArray:
    return measure_rates(nn.PolynomialDecayLR(0.1, 0.0, decay_steps=4, power=2.0))


def experimental_schedulers() -> dict[str, NDArray]:
    make = lr_scheduler
    return {
        "cosine": measure_experimental_rates(lambda sgd: make.CosineAnnealingLR(sgd, T_max=4)),
        "linear": measure_experimental_rates(lambda sgd: make.LinearLR(sgd)),
        "steps": measure_experimental_rates(lambda sgd: make.MultiStepLR(sgd, milestones=[2, 4])),
        "restarts": measure_experimental_rates(
            lambda sgd: make.CosineAnnealingWarmRestarts(sgd, T_0=3)
        ),
    }


def scheduler_optimizer() -> float:
    optimizer = nn.SGD([parameter(0.0)], learning_rate=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer((ms.Tensor(1.0),))
    scheduler.step()
    return float(optimizer.get_lr())


def scheduler_optimizer_equal() -> float:
    optimizer = optim.SGD([parameter(0.0)], lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer((ms.Tensor(1.0),))
    scheduler.step()
    return float(optimizer.param_groups[0]["lr"])


def lr_change() -> NDArray:
    weight = parameter(0.0)
    optimizer = nn.SGD([weight], learning_rate=0.1)
    optimizer((ms.Tensor(1.0),))
    optimizer.learning_rate.set_data(ms.Tensor(0.5))
    optimizer((ms.Tensor(1.0),))
    return weight.asnumpy()


def lr_change_equal() -> NDArray:
    weight = parameter(0.0)
    optimizer = nn.SGD([weight], learning_rate=0.1)
    optimizer((ms.Tensor(1.0),))
    ops.assign(optimizer.learning_rate, ms.Tensor(0.5))
    optimizer((ms.Tensor(1.0),))
    return weight.asnumpy()


def lr_group() -> dict[str, NDArray]:
    body, head = parameter(1.0, "body"), parameter(1.0, "head")
    groups = [{"params": [body], "lr": 0.01}, {"params": [head]}]
    optimizer = nn.SGD(groups, learning_rate=[0.1, 0.05, 0.025])
    for _ in range(3):
        optimizer((ms.Tensor(1.0), ms.Tensor(1.0)))
    return {"body": 1 - body.asnumpy(), "head": 1 - head.asnumpy()}


def lr_group_equal() -> dict[str, NDArray]:
    body, head = parameter(1.0, "body"), parameter(1.0, "head")
    groups = [{"params": [body], "lr": [0.01, 0.005, 0.0025]}, {"params": [head]}]
    optimizer = nn.SGD(groups, learning_rate=[0.1, 0.05, 0.025])
    for _ in range(3):
        optimizer((ms.Tensor(1.0), ms.Tensor(1.0)))
    return {"body": 1 - body.asnumpy(), "head": 1 - head.asnumpy()}
