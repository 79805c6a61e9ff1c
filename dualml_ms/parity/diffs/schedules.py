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
    """Make a scalar parameter with this value."""
    return ms.Parameter(ms.Tensor(value), name=name)


def measure_rates(learning_rate: list[float] | nn.Cell, steps: int = 8) -> NDArray:
    """Return the step sizes, the rates, of ``steps`` updates of `nn.SGD` with a list of rates or a
    schedule."""
    weight = parameter(0.0)
    optimizer, places = nn.SGD([weight], learning_rate), [0.0]
    for _ in range(steps):
        optimizer((ms.Tensor(1.0),))
        places.append(float(weight.asnumpy()))
    return -np.diff(places)


def measure_experimental_rates(
    make: Callable[[optim.SGD], lr_scheduler.LRScheduler], steps: int = 8
) -> NDArray:
    """Return the step sizes, the rates, of ``steps`` updates of the experimental SGD from a rate of
    0.1; the scheduler that ``make`` returns steps after each."""
    weight = parameter(0.0)
    optimizer, places = optim.SGD([weight], lr=0.1), [0.0]
    scheduler = make(optimizer)
    for _ in range(steps):
        optimizer((ms.Tensor(1.0),))
        places.append(float(weight.asnumpy()))
        scheduler.step()
    return -np.diff(places)


def schedule_counter() -> NDArray:
    """Run the probe "Who counts the steps of a schedule" in MindSpore and return the rate of each
    update. A list or schedule given as `learning_rate` goes on with every call of the optimizer: a
    list of rates per epoch is used up batch by batch."""
    return measure_rates([0.1 * 0.5**epoch for epoch in range(8)])


def schedule_counter_equal() -> NDArray:
    """Run the probe "Who counts the steps of a schedule" in MindSpore, written to agree with
    PyTorch, and return the rate of each update. MindSpore: write the list per step: `rates[step //
    batches]`."""
    batches = 2
    return measure_rates([0.1 * 0.5 ** (step // batches) for step in range(8)])


def schedule_list_too_short() -> NDArray:
    """Run the probe "After the end of a list of rates" in MindSpore, where it raises RuntimeError;
    else return the rate of each update. A list that is shorter than the training raises in the
    middle of it (`Gather` out of range)."""
    return measure_rates(nn.piecewise_constant_lr([2, 4], [0.1, 0.01]), steps=6)


def schedule_list_too_short_equal() -> NDArray:
    """Run the probe "After the end of a list of rates" in MindSpore, written to agree with PyTorch,
    and return the rate of each update. MindSpore: make the list as long as the training; the last
    milestone of `piecewise_constant_lr` is its length."""
    return measure_rates(nn.piecewise_constant_lr([2, 4, 6], [0.1, 0.01, 0.001]), steps=6)


def cosine_decay() -> NDArray:
    """Run the probe "Cosine decay by steps or by epochs" in MindSpore and return the rate of each
    update. `nn.cosine_decay_lr` gives one rate for all the steps of an epoch: stairs."""
    return measure_rates(
        nn.cosine_decay_lr(0.0, 0.1, total_step=8, step_per_epoch=2, decay_epoch=4)
    )


def cosine_decay_equal() -> NDArray:
    """Run the probe "Cosine decay by steps or by epochs" in MindSpore, written to agree with
    PyTorch, and return the rate of each update. MindSpore: `step_per_epoch=1` and `decay_epoch` =
    number of steps, or `nn.CosineDecayLR`."""
    return measure_rates(
        nn.cosine_decay_lr(0.0, 0.1, total_step=8, step_per_epoch=1, decay_epoch=8)
    )


def cosine_past_end() -> NDArray:
    """Run the probe "Cosine decay after its end" in MindSpore and return the rate of each update.
    `nn.CosineDecayLR` and `nn.cosine_decay_lr` stay at the minimum."""
    return measure_rates(nn.CosineDecayLR(min_lr=0.0, max_lr=0.1, decay_steps=4))


def cosine_past_end_equal() -> NDArray:
    """Run the probe "Cosine decay after its end" in MindSpore, written to agree with PyTorch, and
    return the rate of each update. Let `T_max` and `decay_steps` be the whole training; or
    MindSpore: a list with the formula, or `experimental.optim.lr_scheduler.CosineAnnealingLR`."""
    return measure_rates([0.05 * (1 + math.cos(math.pi * step / 4)) for step in range(8)])


def exponential_decay() -> NDArray:
    """Run the probe "Exponential decay within an epoch" in MindSpore and return the rate of each
    update. `nn.ExponentialDecayLR(…, decay_steps=n)` falls with every step, by fractions of the
    exponent."""
    return measure_rates(nn.ExponentialDecayLR(0.1, decay_rate=0.5, decay_steps=2))


def exponential_decay_equal() -> NDArray:
    """Run the probe "Exponential decay within an epoch" in MindSpore, written to agree with
    PyTorch, and return the rate of each update. MindSpore: `is_stair=True`."""
    return measure_rates(nn.ExponentialDecayLR(0.1, decay_rate=0.5, decay_steps=2, is_stair=True))


def warmup() -> NDArray:
    """Run the probe "Where warm-up starts" in MindSpore and return the rate of each update.
    `nn.WarmUpLR` and `nn.warmup_lr` start at 0: the first step moves nothing (with `warmup_lr`, no
    step of the first epoch does)."""
    return measure_rates(nn.WarmUpLR(0.1, warmup_steps=4))


def warmup_equal() -> NDArray:
    """Run the probe "Where warm-up starts" in MindSpore, written to agree with PyTorch, and return
    the rate of each update. MindSpore: a list with `LinearLR`'s formula, or
    `experimental.optim.lr_scheduler.LinearLR`."""
    start = 1 / 3
    return measure_rates([0.1 * (start + (1 - start) * min(step, 4) / 4) for step in range(8)])


def step_decay() -> NDArray:
    """Run the probe "What milestones count" in MindSpore and return the rate of each update.
    `nn.piecewise_constant_lr` counts batches; the milestone itself has the new rate here, too."""
    return measure_rates(nn.piecewise_constant_lr([1, 2, 6], [0.1, 0.01, 0.001]), steps=6)


def step_decay_equal() -> NDArray:
    """Run the probe "What milestones count" in MindSpore, written to agree with PyTorch, and return
    the rate of each update. MindSpore: multiply the milestones by the number of batches; the last
    one is the length of the training."""
    batches = 2
    milestones = [batches * epoch for epoch in (1, 2, 3)]
    return measure_rates(nn.piecewise_constant_lr(milestones, [0.1, 0.01, 0.001]), steps=6)


def polynomial_decay() -> NDArray:
    """Run the probe "Polynomial decay" in MindSpore and return the rate of each update.
    `nn.PolynomialDecayLR(rate, 0.0, decay_steps, power)` gives the same rates when torch's
    scheduler steps with each batch."""
    return measure_rates(nn.PolynomialDecayLR(0.1, 0.0, decay_steps=4, power=2.0))


def experimental_schedulers() -> dict[str, NDArray]:
    """Run the probe "`experimental.optim.lr_scheduler`" in MindSpore and return scheduler → rate of
    each update. Schedulers of the same names, stepped by the user, give the same rates; they need
    an optimizer of `experimental.optim`."""
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
    """Run the probe "A scheduler object for an `nn` optimizer" in MindSpore, where it raises
    TypeError; else return the rate after one step. `experimental.optim.lr_scheduler` takes
    optimizers of `experimental.optim` only; `nn.SGD` raises a TypeError that says “SGD is not an
    Optimizer”."""
    optimizer = nn.SGD([parameter(0.0)], learning_rate=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer((ms.Tensor(1.0),))
    scheduler.step()
    return float(optimizer.get_lr())


def scheduler_optimizer_equal() -> float:
    """Run the probe "A scheduler object for an `nn` optimizer" in MindSpore, written to agree with
    PyTorch, and return the rate after one step. MindSpore: `experimental.optim.SGD`; or give
    `nn.SGD` a list or a `LearningRateSchedule`."""
    optimizer = optim.SGD([parameter(0.0)], lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer((ms.Tensor(1.0),))
    scheduler.step()
    return float(optimizer.param_groups[0]["lr"])


def lr_change() -> NDArray:
    """Run the probe "Changing the rate by hand" in MindSpore and return the weight after two steps.
    In PyNative mode, after the first step `optimizer.learning_rate.set_data(…)` (or assigning a
    tensor) is ignored: the optimizer goes on with the old rate."""
    weight = parameter(0.0)
    optimizer = nn.SGD([weight], learning_rate=0.1)
    optimizer((ms.Tensor(1.0),))
    optimizer.learning_rate.set_data(ms.Tensor(0.5))
    optimizer((ms.Tensor(1.0),))
    return weight.asnumpy()


def lr_change_equal() -> NDArray:
    """Run the probe "Changing the rate by hand" in MindSpore, written to agree with PyTorch, and
    return the weight after two steps. MindSpore: `ops.assign(optimizer.learning_rate, …)`."""
    weight = parameter(0.0)
    optimizer = nn.SGD([weight], learning_rate=0.1)
    optimizer((ms.Tensor(1.0),))
    ops.assign(optimizer.learning_rate, ms.Tensor(0.5))
    optimizer((ms.Tensor(1.0),))
    return weight.asnumpy()


def lr_group() -> dict[str, NDArray]:
    """Run the probe "A schedule and a group with its own rate" in MindSpore and return how far
    ``body`` and ``head`` moved in three steps. A group with a number as `lr` keeps it; the schedule
    holds for the others only."""
    body, head = parameter(1.0, "body"), parameter(1.0, "head")
    groups = [{"params": [body], "lr": 0.01}, {"params": [head]}]
    optimizer = nn.SGD(groups, learning_rate=[0.1, 0.05, 0.025])
    for _ in range(3):
        optimizer((ms.Tensor(1.0), ms.Tensor(1.0)))
    return {"body": 1 - body.asnumpy(), "head": 1 - head.asnumpy()}


def lr_group_equal() -> dict[str, NDArray]:
    """Run the probe "A schedule and a group with its own rate" in MindSpore, written to agree with
    PyTorch, and return how far ``body`` and ``head`` moved in three steps. MindSpore: give the
    group a list (or schedule) of its own."""
    body, head = parameter(1.0, "body"), parameter(1.0, "head")
    groups = [{"params": [body], "lr": [0.01, 0.005, 0.0025]}, {"params": [head]}]
    optimizer = nn.SGD(groups, learning_rate=[0.1, 0.05, 0.025])
    for _ in range(3):
        optimizer((ms.Tensor(1.0), ms.Tensor(1.0)))
    return {"body": 1 - body.asnumpy(), "head": 1 - head.asnumpy()}
