"""One parameter update with given gradients: dualml's optimizers compared with torch's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dualml_torch.optim as ours
from dualml.bench.section import Add, Job
from dualml.model import model
from dualml_torch.bench.by_hand import HOW
from dualml_torch.bench.race import Make, captured, milliseconds, race
from dualml_torch.environment import resolve_device

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd, momentum 0.9": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-3}),
}
#: 784 → 2048 → 2048 → 2048 → 10: ten million parameters.
WIDE = [
    *((2048, 784), (2048,), (2048, 2048), (2048,), (2048, 2048), (2048,), (10, 2048), (10,)),
]


def section(job: Job, add: Add) -> None:
    """Add a row for each rule, size and variant. All variants update the same memory."""
    torch.set_num_threads(job.threads)
    device = resolve_device(job.device)
    sizes = {"lenet": list(model("lenet").parameters().values()), "mlp, 10 million": WIDE}
    for size, shapes in list(sizes.items())[: 1 if job.quick else None]:
        draw = torch.Generator().manual_seed(0)
        params = []
        for shape in shapes:
            params.append(torch.nn.Parameter(torch.randn(shape, generator=draw).to(device)))
            params[-1].grad = torch.randn(shape, generator=draw).to(device)
        for rule, (name, fields) in list(RULES.items())[: 1 if job.quick else None]:
            variants = of_rule(name, fields, params, device)
            race(variants, 2 if job.quick else 25, "ours", add, rule=rule, model=size)


def of_rule(
    name: str, fields: dict[str, Any], params: list[torch.nn.Parameter], device: torch.device
) -> dict[str, Make]:
    """Return the variants of an optimizer by name: dualml's, dualml's compiled, and torch's."""
    times = 20 if sum(p.numel() for p in params) < 1e6 else 5

    def timed(step: Callable[[], Any]) -> Callable[[], float]:
        return partial(milliseconds, device, step, times)

    def theirs(how: str) -> Callable[[], float]:
        options = dict(HOW[how])
        if how == "compiled":
            options = {"foreach": True}  # a fused kernel cannot be compiled further
        if name == "SGD":
            options.pop("capturable", None)  # it has no step count that a graph would freeze
        step = getattr(torch.optim, name)(params, **fields, **options).step
        if how == "compiled":
            step = torch.compile(step)
        return timed(captured(device, step, lambda: None).replay if how == "graph" else step)

    own = getattr(ours, name)
    variants: dict[str, Make] = {
        "ours": lambda: timed(own(params, **fields).step),
        "ours_compiled": lambda: timed(own(params, compiled=True, **fields).step),
    }
    return variants | {how: partial(theirs, how) for how in HOW}
