"""The update rules as `mindspore.nn.Optimizer`s, one file each, usable in any training script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import Unsupported
from dualml_ms.algorithms.optim.adagrad import Adagrad
from dualml_ms.algorithms.optim.adam import Adam
from dualml_ms.algorithms.optim.adamw import AdamW
from dualml_ms.algorithms.optim.base import OPTIMIZERS, RuleOptimizer
from dualml_ms.algorithms.optim.gd import GD
from dualml_ms.algorithms.optim.rates import Rate
from dualml_ms.algorithms.optim.rmsprop import RMSprop
from dualml_ms.algorithms.optim.sgd import SGD
from dualml_ms.algorithms.optim.state import lazy_state, load_state, state

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
    "lazy_state",
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
        raise Unsupported(f"the mindspore backend does not implement the update rule {rule.name!r}")
    return OPTIMIZERS[rule.name]


def optimizer(
    rule: OptimizerSpec, parameters: Iterable[Any], learning_rate: Rate | None = None
) -> RuleOptimizer:
    """Make the optimizer that implements ``rule`` over ``parameters``.

    Args:
        learning_rate: one value per step or a schedule, in place of the rule's own ``lr``.

    Raises:
        Unsupported: this backend does not implement the rule.
    """
    return implementation(rule)(parameters, learning_rate, **asdict(rule))
