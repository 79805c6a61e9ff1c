"""The update rules as `mindspore.nn.Optimizer`s, one file each, usable in any training script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dualml.errors import Unsupported
from dualml.optim import Rule
from dualml_ms.optim.adagrad import Adagrad
from dualml_ms.optim.adam import Adam
from dualml_ms.optim.adamw import AdamW
from dualml_ms.optim.base import RuleOptimizer
from dualml_ms.optim.gd import GD
from dualml_ms.optim.rates import Rate
from dualml_ms.optim.rmsprop import RMSprop
from dualml_ms.optim.sgd import SGD
from dualml_ms.optim.state import load_state, state

OPTIMIZERS = {cls.rule_type: cls for cls in (GD, SGD, Adam, AdamW, RMSprop, Adagrad)}

__all__ = [
    "GD",
    "OPTIMIZERS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "RMSprop",
    "RuleOptimizer",
    "load_state",
    "optimizer",
    "state",
]


def optimizer(
    rule: Rule, parameters: Iterable[Any], learning_rate: Rate | None = None
) -> RuleOptimizer:
    """The optimizer that implements ``rule`` over ``parameters``.

    Args:
        learning_rate: one value per step or a schedule, in place of the rule's own ``lr``.

    Raises:
        Unsupported: this backend has no implementation of the rule.
    """
    if type(rule) not in OPTIMIZERS:
        raise Unsupported(f"the mindspore backend does not implement the update rule {rule.name!r}")
    return OPTIMIZERS[type(rule)](parameters, learning_rate, **asdict(rule))
