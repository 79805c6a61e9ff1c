"""Run a student's PyTorch code of Lab 3: samplers in a DataLoader, data parallel updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from dualml.course.drive_lab3 import run_samplers
from dualml.course.returned import read_number

Arrays = Mapping[str, Any]
WEIGHTS = ("w1", "b1", "w2", "b2")


def sampler(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's sampler class ``target`` of ``module`` in a DataLoader; the result is that
    of `dualml.course.drive_lab3.run_samplers`."""
    h = options["hyper"]

    def make_sampler(rank: int, seed: int) -> Any:
        return getattr(module, target)(h["n"], h["ranks"], rank, seed, kind=h["kind"])

    def load(sampler: Any) -> Any:
        loader: Any = DataLoader(
            range(h["n"]),  # type: ignore[arg-type]
            batch_size=options["batch"],
            sampler=sampler,
        )
        return np.concatenate([batch.numpy() for batch in loader] or [np.zeros(0, np.int64)])

    def random_state() -> bytes:
        return bytes(torch.get_rng_state().numpy())

    return run_samplers(make_sampler, load, options, random_state)


class Net(torch.nn.Module):
    """The network (x − shift) → z / (1 + |z|) → outputs; ``shift`` is a buffer, not a parameter."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        for name in WEIGHTS:
            p = torch.nn.Parameter(torch.from_numpy(arrays[f"p/{name}"].copy()))
            self.register_parameter(name, p)
        self.register_buffer("shift", torch.from_numpy(arrays["p/shift"].copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs for samples ``x``, one per row."""
        w: dict[str, Any] = dict(self.named_parameters())
        z = (x - self.get_buffer("shift")) @ w["w1"] + w["b1"]
        outputs: torch.Tensor = z / (1 + z.abs()) @ w["w2"] + w["b2"]
        return outputs

    def values(self, prefix: str = "") -> dict[str, Any]:
        """Return copies of parameters and buffers by name, each name after ``prefix``."""
        return {f"{prefix}{n}": v.detach().numpy().copy() for n, v in self.state_dict().items()}


class Descent(torch.optim.Optimizer):
    """Gradient descent θ ← θ − η·g, or with ``adaptive`` AdaGrad: θ ← θ − η·g/(√Σg² + ε)."""

    def __init__(self, params: Any, lr: float, adaptive: bool, eps: float) -> None:
        super().__init__(params, {"lr": lr, "adaptive": adaptive, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update each parameter that has a gradient in place; ``closure`` is ignored."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if group["adaptive"]:
                    total = self.state[p].setdefault("sum", torch.zeros_like(p))
                    total += g * g
                    g = g / (total.sqrt() + group["eps"])
                p -= group["lr"] * g


def same_start(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's ``same_start`` (``target`` of ``module``) on a model with the parameters in
    ``arrays``; return its parameters and buffers after it by name, and ``kept``: 1 if the
    parameters are still the same objects and require gradients, else 0."""
    net = Net(arrays)
    before = list(net.parameters())
    getattr(module, target)(comm, net)
    after = list(net.parameters())
    kept = len(before) == len(after) and all(
        a is b and b.requires_grad for a, b in zip(before, after, strict=True)
    )
    return {**net.values(), "kept": np.asarray(float(kept))}


def train_steps(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's training step ``target`` of ``module`` on the batches ``x/3``, ``y/3``;
    ``3/w1`` is parameter w1 after update 3, without the buffer, ``3/loss`` the loss that the step
    returned, if the option ``loss`` is set, ``3/x`` and ``3/y`` the batch after the call."""
    h, net = options["hyper"], Net(arrays)
    optimizer = Descent(net.parameters(), h["lr"], h["adaptive"], h["eps"])
    loss_fn = torch.nn.MSELoss()
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = torch.from_numpy(arrays[f"x/{step}"]), torch.from_numpy(arrays[f"y/{step}"])
        loss = getattr(module, target)(comm, net, loss_fn, optimizer, x, y)
        out |= {f"{step}/x": x.numpy().copy(), f"{step}/y": y.numpy().copy()}
        if options["loss"]:
            out[f"{step}/loss"] = np.asarray(read_number(loss, target))
        out |= {k: v for k, v in net.values(f"{step}/").items() if not k.endswith("shift")}
    return out
