"""PyTorch adapter of the optimizer conformance tests, see `dualml.backend.conformance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend import Array
from dualml.backend.conformance import Gradient, Mode, OptimizerResult, Params

MODES = {
    "float32": Mode("float32"),
    "float64": Mode("float64"),
    "compiled": Mode("float32", costly=True),  # Inductor compiles each rule by itself
}
COMPILES = False


class Optimizers:
    """Optimizers run one after the other, eagerly or compiled."""

    def __init__(
        self,
        rules: Mapping[str, OptimizerSpec],
        mode: str,
        rates: Mapping[str, Sequence[float]] | None,
        device: str,
    ) -> None:
        self.rules, self.mode, self.rates, self.device = rules, mode, rates, device

    def run(self, start: Params, gradient: Gradient, steps: int) -> dict[str, OptimizerResult]:
        """Run the optimizer of each rule by itself for ``steps`` updates from the parameters
        ``start``, as `run_optimizer` does; return rule name → result."""
        return {name: self.run_optimizer(name, start, gradient, steps) for name in self.rules}

    def run_optimizer(
        self, name: str, start: Params, gradient: Gradient, steps: int
    ) -> OptimizerResult:
        """Run the optimizer of rule ``name`` for ``steps`` updates from ``start``, with the
        gradients that ``gradient`` returns for the current parameters, as float64, and the number
        of the update, from 1; return parameters and state."""
        import torch

        from dualml_torch.algorithms.optim import optimizer, state

        place: Any = {"dtype": getattr(torch, MODES[self.mode].dtype), "device": self.device}
        own = {n: torch.nn.Parameter(torch.tensor(a, **place)) for n, a in start.items()}
        opt = optimizer(self.rules[name], own.values(), compiled=self.mode == "compiled")
        for step in range(1, steps + 1):
            now = {n: to_numpy(p).astype(np.float64) for n, p in own.items()}
            for n, g in gradient(now, step).items():
                own[n].grad = torch.tensor(g, **place)
            if self.rates is not None:
                opt.param_groups[0]["lr"] = self.rates[name][step - 1]
            opt.step()
        return OptimizerResult({n: to_numpy(p) for n, p in own.items()}, state(opt, list(own)))


def to_numpy(parameter: Any) -> Array:
    """Return a parameter's values as an array on the host; it shares the memory of a parameter on a
    CPU."""
    values: Array = parameter.detach().cpu().numpy()
    return values


def optimizers(
    rules: Mapping[str, OptimizerSpec],
    shapes: Mapping[str, tuple[int, ...]],
    mode: str,
    rates: Mapping[str, Sequence[float]] | None = None,
    device: str = "cpu",
) -> Optimizers:
    """Make the optimizers of these rules for a mode of `MODES`; ``shapes`` is ignored. ``rates``
    holds each rule's learning rate for every update, None: the rule's own."""
    return Optimizers(rules, mode, rates, device)


def settings() -> dict[str, str]:
    """Return the current values of global settings that an optimizer must not change, by name."""
    import torch

    return {
        "default dtype": str(torch.get_default_dtype()),
        "gradients": str(torch.is_grad_enabled()),
    }
