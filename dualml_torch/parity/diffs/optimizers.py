"""Probes of optimizers in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from dualml.parity.diffs.inputs import normal

WEIGHTS = {"weight": normal(3, 4) * 0.1, "bias": normal(3) * 0.1}


def five_steps(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], scale: float = 1.0
) -> dict[str, NDArray]:
    """Return name → weight, from `WEIGHTS`, after five steps of the optimizer that ``make`` returns
    for the weights. The gradients are ``scale`` times normal numbers, equal in both frameworks."""
    weights = {name: nn.Parameter(torch.tensor(array)) for name, array in WEIGHTS.items()}
    optimizer = make(list(weights.values()))
    for step in range(5):
        for weight in weights.values():
            weight.grad = torch.tensor(normal(*weight.shape, seed=1 + step) * scale)
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def sgd_default_rate() -> dict[str, NDArray]:
    """Run the probe "SGD's default learning rate" in PyTorch and return name → weight after five
    steps. `optim.SGD` takes `lr=0.001` when none is given."""
    return five_steps(lambda weights: torch.optim.SGD(weights))


def sgd_default_rate_equal() -> dict[str, NDArray]:
    """Run the probe "SGD's default learning rate" in PyTorch, written to agree with MindSpore, and
    return name → weight after five steps. Always pass the rate, on both sides."""
    return five_steps(lambda weights: torch.optim.SGD(weights, lr=0.1))


def sgd_explicit() -> tuple[dict[str, NDArray], ...]:
    """Run the probe "SGD with everything passed" in PyTorch and return two dicts of name → weight
    after five steps, with dampening and with Nesterov. Momentum, dampening, Nesterov and weight
    decay; the first step takes the gradient itself as its momentum."""
    given = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    return (
        five_steps(lambda weights: torch.optim.SGD(weights, **given, dampening=0.5)),
        five_steps(lambda weights: torch.optim.SGD(weights, **given, nesterov=True)),
    )


def momentum_nesterov() -> dict[str, NDArray]:
    """Run the probe "`nn.Momentum(use_nesterov=True)`" in PyTorch and return name → weight after
    five steps. `optim.SGD(nesterov=True)` goes along gradient plus momentum × buffer."""
    return five_steps(lambda weights: torch.optim.SGD(weights, 0.1, 0.9, nesterov=True))


def decay_filter() -> dict[str, NDArray]:
    """Run the probe "Weight decay passes over normalisation layers" in PyTorch and return ``scale``
    and ``shift`` after one step. `weight_decay` decays every parameter it is given."""
    layer = nn.LayerNorm(8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1)
    for weight in layer.parameters():
        weight.grad = torch.ones(8)
    optimizer.step()
    return {"scale": layer.weight.detach().numpy(), "shift": layer.bias.detach().numpy()}


def decay_coupling() -> dict[str, NDArray]:
    """Run the probe "AdamW ported to `nn.Adam`" in PyTorch and return name → weight after five
    steps. `optim.AdamW` shrinks the weights directly (decoupled); `optim.Adam(weight_decay=…)` adds
    the decay to the gradient."""
    return five_steps(lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adam_explicit() -> dict[str, NDArray]:
    """Run the probe "Adam with ordinary gradients" in PyTorch and return name → weight after five
    steps. `optim.Adam(lr=…, weight_decay=…)`."""
    return five_steps(lambda weights: torch.optim.Adam(weights, lr=0.01, weight_decay=0.1))


def adam_epsilon() -> dict[str, NDArray]:
    """Run the probe "Where Adam adds its ε" in PyTorch and return name → weight after five steps. ε
    is added to the root of the bias-corrected second moment."""
    return five_steps(lambda weights: torch.optim.Adam(weights, lr=0.01, eps=1e-3))


def adam_tiny_gradients() -> dict[str, NDArray]:
    """Run the probe "Adam's default ε and tiny gradients" in PyTorch and return name → weight after
    five steps. ε = 1e-8 is compared with the corrected root, about the size of the gradient."""
    return five_steps(lambda weights: torch.optim.Adam(weights, lr=0.01), scale=1e-8)


def adamw_bias_correction() -> dict[str, NDArray]:
    """Run the probe "`nn.AdamWeightDecay` does not correct the bias" in PyTorch and return name →
    weight after five steps. `optim.AdamW` divides both moments by 1 − βᵗ."""
    return five_steps(lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1))


def adamw_defaults() -> dict[str, NDArray]:
    """Return name → weight after five steps of `optim.AdamW` at a rate of 0.1 with zero gradients,
    which leave only the default decay."""
    return five_steps(lambda weights: torch.optim.AdamW(weights, lr=0.1), scale=0.0)


def nadam() -> dict[str, NDArray]:
    """Run the probe "NAdam ported to `nn.Adam(use_nesterov=True)`" in PyTorch and return name →
    weight after five steps. `optim.NAdam` schedules its momentum with `momentum_decay`."""
    return five_steps(lambda weights: torch.optim.NAdam(weights, lr=0.01))


def rmsprop_form() -> dict[str, NDArray]:
    """Run the probe "RMSprop's ε and its start" in PyTorch and return name → weight after five
    steps. The mean square starts at 0, and ε is added outside of the root."""
    return five_steps(lambda weights: torch.optim.RMSprop(weights, lr=0.01, alpha=0.9, eps=1e-8))


def rmsprop_defaults() -> dict[str, NDArray]:
    """Run the probe "RMSprop's defaults" in PyTorch and return name → weight after five steps.
    `lr=0.01`, `alpha=0.99`, `eps=1e-8`."""
    return five_steps(lambda weights: torch.optim.RMSprop(weights))


def adagrad_accumulator() -> dict[str, NDArray]:
    """Run the probe "What Adagrad starts from" in PyTorch and return name → weight after five
    steps. The accumulator starts at 0 (and `lr` is 0.01 by default)."""
    return five_steps(lambda weights: torch.optim.Adagrad(weights, lr=0.01))


def default_rates() -> dict[str, Any]:
    """Run the probe "Default rates of Adamax, Rprop and ASGD" in PyTorch and return optimizer →
    weight (3, 4) after five steps. 0.002, 0.01 and 0.01."""
    return {
        "adamax": five_steps(lambda weights: torch.optim.Adamax(weights))["weight"],
        "rprop": five_steps(lambda weights: torch.optim.Rprop(weights))["weight"],
        "asgd": five_steps(lambda weights: torch.optim.ASGD(weights))["weight"],
    }


def unused_parameters() -> dict[str, NDArray]:
    """Run the probe "Parameters that the loss does not use" in PyTorch and return ``used`` and
    ``unused`` after one step. Their gradient is `None` and the optimizer leaves them alone."""
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([used, unused], lr=0.1, weight_decay=0.1)
    used.square().sum().backward()
    optimizer.step()
    return {"used": used.detach().numpy(), "unused": unused.detach().numpy()}


def frozen_parameters() -> dict[str, NDArray]:
    """Run the probe "Freezing after the optimizer was made" in PyTorch and return ``body`` and
    ``head`` after one step. `requires_grad = False` leaves the gradient at `None`: the parameter
    stays as it is."""
    body, head = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([body, head], lr=0.1, weight_decay=0.1)
    body.requires_grad = False
    (body * head).sum().backward()
    optimizer.step()
    return {"body": body.detach().numpy(), "head": head.detach().numpy()}


def mint_optim() -> dict[str, NDArray]:
    """Run the probe "`mint.optim` on CPU" in PyTorch and return name → weight after five steps.
    `optim.SGD` moves the weights."""
    return five_steps(lambda weights: torch.optim.SGD(weights, lr=0.1))


def clip_global_norm() -> NDArray:
    """Run the probe "The constant in clipping by the global norm" in PyTorch and return the clipped
    gradient (2,). `clip_grad_norm_` divides by norm + 1e-6."""
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3e-3, 4e-3])
    nn.utils.clip_grad_norm_([weight], max_norm=1e-3)
    return weight.grad.numpy()


def clip_in_place() -> NDArray:
    """Run the probe "Clipping gradients and dropping the result" in PyTorch and return the weight
    (2,) after one step. `clip_grad_norm_` changes the gradients in place."""
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.tensor([3.0, 4.0])
    nn.utils.clip_grad_norm_([weight], max_norm=1.0)
    optimizer.step()
    return weight.detach().numpy()


def group_order() -> dict[str, NDArray]:
    """Run the probe "Gradients in another order than the groups" in PyTorch and return ``body`` and
    ``head`` after one step. Each parameter carries its gradient; the order of groups does not
    matter."""
    body, head = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([{"params": [head], "lr": 0.1}, {"params": [body], "lr": 0.01}])
    (body + 5 * head).sum().backward()
    optimizer.step()
    return {"body": body.detach().numpy(), "head": head.detach().numpy()}


def group_keys() -> NDArray:
    """Run the probe "Momentum or betas of a parameter group" in PyTorch and return the weight (3,)
    after two steps. A group may set any of the optimizer's options."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([{"params": [weight], "momentum": 0.9}], lr=0.1)
    for _ in range(2):
        weight.grad = torch.ones(3)
        optimizer.step()
    return weight.detach().numpy()


def parameter_names() -> int:
    """Run the probe "Two layers in one optimizer" in PyTorch and return the number of parameters in
    the optimizer. Parameters have no names; any list of them will do."""
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    return len(optimizer.param_groups[0]["params"])


def weights_replaced() -> NDArray:
    """Run the probe "Loading weights after the first step" in PyTorch and return the weight (2, 3)
    after both steps. `load_state_dict` copies into the same memory; training goes on from the new
    weights."""
    layer = nn.Linear(3, 2, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer.weight.grad = torch.ones(2, 3)
    optimizer.step()
    layer.load_state_dict({"weight": torch.ones(2, 3)})
    optimizer.step()
    return layer.weight.detach().numpy()


def loaded_weights_shared() -> NDArray:
    """Return the weight (2, 3) of a layer that has loaded another's, ones, after that other one was
    trained by a step, which leaves it alone here."""
    original, copy = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    nn.init.ones_(original.weight)
    copy.load_state_dict(original.state_dict())
    optimizer = torch.optim.SGD(original.parameters(), lr=0.1)
    original.weight.grad = torch.ones(2, 3)
    optimizer.step()
    return copy.weight.detach().numpy()


def cloned_state() -> dict[str, NDArray]:
    """Return name → weight after five steps of momentum by hand; its state starts from zeros."""
    weights = {name: torch.tensor(array) for name, array in WEIGHTS.items()}
    moments = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for step in range(5):
        for name, weight in weights.items():
            gradient = torch.tensor(normal(*weight.shape, seed=1 + step))
            moments[name] = 0.9 * moments[name] + gradient
            weight -= 0.1 * moments[name]
    return {name: weight.numpy() for name, weight in weights.items()}


def loss_scale_overflow() -> NDArray:
    """Run the probe "A step with overflown gradients" in PyTorch and return the weight (3,) after
    the step. `GradScaler.step` skips the step when a gradient is not finite."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale((weight * 1e38).sum()).backward()
    scaler.step(optimizer)
    return weight.detach().numpy()
