"""One parameter update with given gradients: dualml's optimizers compared with torch's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import dualml_torch.algorithms.optim as ours
from dualml.algorithms.model import model
from dualml.interface.bench.section import AddRow, BenchJob
from dualml_torch.bench.plain_loop import OPTIMIZER_OPTIONS
from dualml_torch.bench.race import MakeVariant, capture_graph, race, time_milliseconds
from dualml_torch.common.environment import resolve_device

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd, momentum 0.9": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "adam": ("Adam", {"lr": 1e-3}),
}
#: 784 → 2048 → 2048 → 2048 → 10: ten million parameters.
WIDE = [
    *((2048, 784), (2048,), (2048, 2048), (2048,), (2048, 2048), (2048,), (10, 2048), (10,)),
]


def section(job: BenchJob, add: AddRow) -> None:
    """Call ``add`` with a row of times for each rule, size and variant; in a quick job for the
    first rule and size alone. All variants update the same memory."""
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
            variants = optimizer_variants(name, fields, params, device)
            race(variants, 2 if job.quick else 25, "ours", add, rule=rule, model=size)


def optimizer_variants(
    name: str, fields: dict[str, Any], params: list[torch.nn.Parameter], device: torch.device
) -> dict[str, MakeVariant]:
    """Return name → factory of a function that makes some updates and returns milliseconds per
    update: dualml's optimizer ``name`` (``ours``, ``ours_compiled``), and torch's with each of
    `OPTIMIZER_OPTIONS`. All update ``params`` in place."""
    times = 20 if sum(p.numel() for p in params) < 1e6 else 5

    def make_timer(step: Callable[[], Any]) -> Callable[[], float]:
        return partial(time_milliseconds, device, step, times)

    def torch_variant(how: str) -> Callable[[], float]:
        options = dict(OPTIMIZER_OPTIONS[how])
        if how == "compiled":
            options = {"foreach": True}  # a fused kernel cannot be compiled further
        if name == "SGD":
            options.pop("capturable", None)  # it has no step count that a graph would freeze
        step = getattr(torch.optim, name)(params, **fields, **options).step
        if how == "compiled":
            step = torch.compile(step)
        return make_timer(
            capture_graph(device, step, lambda: None).replay if how == "graph" else step
        )

    own = getattr(ours, name)
    variants: dict[str, MakeVariant] = {
        "ours": lambda: make_timer(own(params, **fields).step),
        "ours_compiled": lambda: make_timer(own(params, compiled=True, **fields).step),
    }
    return variants | {how: partial(torch_variant, how) for how in OPTIMIZER_OPTIONS}
