"""Functions that ranks run in the tests of engines (see `dualml.launch.ranks`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Infinite(torch.autograd.Function):
    """An identity whose gradient is infinite."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * float("inf")


def unasked_clipping(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Run DeepSpeed without the line of our file that disables its gradient clipping."""
    import deepspeed
    from conformance.methods import check

    whole = deepspeed.initialize

    def initialize(*, config: dict[str, Any], **more: Any) -> Any:
        assert config.pop("gradient_clipping") == 0
        return whole(config=config, **more)

    deepspeed.initialize = initialize
    return check(comm, argument)


def other_sizes(comm: Any, argument: dict[str, Any]) -> dict[str, str]:
    """Return the errors of an Accelerate that finds no other ranks, and of a single-process loop in
    a group of two."""
    from conformance.backends import create
    from conformance.methods import recipe

    from dualml.common.errors import TrialError
    from dualml.experiment.methods.engine import (
        EngineDataParallel,
        EngineSupport,
        EngineTrainer,
    )

    backend = create("torch")
    driving, said = backend.require_capability(EngineSupport), {}
    alone = {name: driving.method(name, recipe(), None) for name in ("accelerate", "single")}
    for name, start in (
        ("accelerate", lambda: EngineDataParallel(backend, alone["accelerate"], comm)),
        ("single", lambda: EngineTrainer(backend, alone["single"])),
    ):
        try:
            start()
        except TrialError as error:
            said[name] = str(error)
    return said


def overflow(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Make float32 updates with infinite gradients through an engine."""
    from conformance import methods
    from conformance.backends import create

    from dualml.common.errors import TrialError
    from dualml.experiment.methods.engine import EngineDataParallel, EngineSupport

    backend = create("torch")
    training = backend.require_capability(EngineSupport).method(
        argument["method"], methods.recipe(), comm
    )
    driven = EngineDataParallel(backend, training, comm)
    parts = np.array_split(methods.BATCHES[0], comm.size)
    driven.load(methods.WEIGHTS, methods.recipe().initial_state(), 0)
    driven.step(parts, 1)
    before, whole, told = training.weights(), training.loss, ""
    training.method.criterion = lambda logits, y: Infinite.apply(whole(logits, y))
    lost = []
    try:
        for step in range(2, 40):
            driven.step(parts, step)
            lost.append(training.skips.lost)
    except TrialError as error:
        told = str(error)
    training.step_count += 1  # what is gathered is not that of the update before
    after = training.weights()
    return {
        "lost": lost,
        "said": told,
        "moved": any(not np.array_equal(after[name], w) for name, w in before.items()),
        "state": {k: float(v) for k, v in driven.state().get("loss_scale", {}).items()},
    }
