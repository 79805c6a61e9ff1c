"""Source lines of optimizers: of a user's own, and of PyTorch's rules written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from causes_cases import Net, mutation_keys, searched

pytestmark = pytest.mark.usefixtures("one_thread")


class CustomAdagrad(torch.optim.Optimizer):
    """Adagrad with momentum and clipping, as users write it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.05})

    def begin(self, p: Any) -> Any:
        return torch.zeros_like(p)

    def update_param(self, p: Any, g: Any, total: Any, mean: Any) -> None:
        total.addcmul_(g, g)
        mean.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(0.05 * mean / (total.sqrt() + 1e-3))

    def factor(self, gradients: list[Any]) -> list[Any]:
        norm = sum(g.square().sum() for g in gradients).sqrt()
        return [(0.3 / (norm + 1e-6)).clamp(max=1.0)] * len(gradients)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            with_gradient = [p for p in group["params"] if p.grad is not None]
            factors = self.factor([p.grad for p in with_gradient])
            for p, factor in zip(with_gradient, factors, strict=True):
                state = self.state[p]
                if not state:
                    state["total"], state["mean"] = torch.zeros_like(p), self.begin(p)
                self.update_param(p, p.grad * factor, state["total"], state["mean"])


class AfterTheStep(CustomAdagrad):
    def update_param(self, p: Any, g: Any, total: Any, mean: Any) -> None:
        mean.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(0.05 * mean / (total.sqrt() + 1e-3))
        total.addcmul_(g, g)


class OfTheGradient(CustomAdagrad):
    def update_param(self, p: Any, g: Any, total: Any, mean: Any) -> None:
        total.addcmul_(g, g)
        mean.mul_(0.9).add_(g, alpha=0.1)
        p.sub_(0.05 * g / (total.sqrt() + 1e-3))


class BeginsWithWeights(CustomAdagrad):
    """An optimizer state that is a clone of the parameters instead of zeros."""

    def begin(self, p: Any) -> Any:
        return p.clone()


class Backwards(CustomAdagrad):
    def update_param(self, p: Any, g: Any, total: Any, mean: Any) -> None:
        super().update_param(p, g, total, mean)
        p.neg_()


class PerTensorClip(CustomAdagrad):
    def factor(self, gradients: list[Any]) -> list[Any]:
        return [super(PerTensorClip, self).factor([g])[0] for g in gradients]


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        (AfterTheStep, "line:late"),
        (OfTheGradient, "line:operand"),
        (BeginsWithWeights, "line:begin"),
        (Backwards, "line:output"),
        (PerTensorClip, "gradient:alone"),
    ],
)
def test_a_line_of_a_users_own(theirs: Any, wanted: str) -> None:
    found = searched(Net, theirs, 2, ours=CustomAdagrad)
    assert found.equal or found.enough
    assert wanted in {
        word for _, action, argument, _ in mutation_keys(found) for word in (action, argument)
    }


class Adam(torch.optim.Optimizer):
    """PyTorch's Adam written out, as a port has it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.t = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.t += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * p.grad
            v = state["v"] = 0.99 * state.get("v", 0) + 0.01 * p.grad**2
            p -= 0.01 * m / (1 - 0.9**self.t) / (self.root(v / (1 - 0.99**self.t)) + 1e-8)

    def root(self, v: Any) -> Any:
        return v.sqrt()


class NoRoot(Adam):
    def root(self, v: Any) -> Any:
        return v


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.01, betas=(0.9, 0.99))


def test_a_line_of_pytorchs_rule_is_named() -> None:
    found = searched(Net, NoRoot, 2, ours=adam)
    assert found.equal or found.enough
    change = found.causes[0].alterations[0]
    assert (change.action, change.operation) == ("line:drop", "sqrt")
    assert change.line.endswith("(v / c2).sqrt()")


def test_the_rule_in_lines_is_pytorchs() -> None:
    assert searched(Net, Adam, 3, ours=adam).equal
