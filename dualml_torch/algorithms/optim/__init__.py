"""The update rules as `torch.optim.Optimizer`s, one file each, usable in any training script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import Unsupported
from dualml_torch.algorithms.optim.adagrad import Adagrad
from dualml_torch.algorithms.optim.adam import Adam
from dualml_torch.algorithms.optim.adamw import AdamW
from dualml_torch.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_torch.algorithms.optim.gd import GD
from dualml_torch.algorithms.optim.rmsprop import RMSprop
from dualml_torch.algorithms.optim.sgd import SGD
from dualml_torch.algorithms.optim.state import load_state, state

__all__ = [
    "GD",
    "OPTIMIZERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "RMSprop",
    "RuleOptimizer",
    "implementation",
    "load_state",
    "optimizer",
    "state",
]


def implementation(rule: OptimizerSpec) -> type[RuleOptimizer]:
    """Return the optimizer class of a rule.

    Raises:
        Unsupported: this backend has none.
    """
    if rule.name not in OPTIMIZERS or OPTIMIZERS[rule.name].rule_type is not type(rule):
        raise Unsupported(f"the torch backend does not implement the update rule {rule.name!r}")
    return OPTIMIZERS[rule.name]


def optimizer(
    rule: OptimizerSpec, parameters: Iterable[Any], *, compiled: bool = False
) -> RuleOptimizer:
    """Make the optimizer that implements ``rule`` over ``parameters``; ``compiled`` as in
    `RuleOptimizer`.

    Raises:
        Unsupported: this backend has none.
        UserError: a complex parameter.
    """
    return implementation(rule)(parameters, compiled=compiled, **asdict(rule))
