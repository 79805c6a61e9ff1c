"""Shared base of the optimizers in this folder: from an update rule to a `mindspore.nn.Optimizer`.

A rule's own file defines two functions: `coefficients`, the numbers that change between steps, and
`update`, the recurrence for one tensor. In-place tensor operations (``p += x``) silently do
nothing in PyNative mode on a CPU: everything is written with ``ops.assign`` or a fused kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import mindspore as ms
from mindspore import nn, ops

from dualml.algorithms.optim import OptimizerSpec, rule_from
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.common.registry import Registry
from dualml_ms.algorithms.optim.rates import Rate, unify_rates


@keep_former_members
class RuleOptimizer(nn.Optimizer):
    """A native optimizer with the hyperparameters, defaults and checks of its rule.

    Works in PyNative mode and inside compiled cells; ``construct(gradients)`` takes one gradient
    per parameter, in their order. ``global_step`` counts the updates made.

    Args:
        parameters: float32 parameters, or groups (dicts with ``params``, ``lr``,
            ``weight_decay``, ``order_params``, as `mindspore.nn.Optimizer` takes them).
        learning_rate: a float, one value per step, or a `LearningRateSchedule`; ``lr`` if omitted.
        **hyperparameters: the fields of the rule in `dualml.algorithms.optim`. Weight decay acts on
            every parameter; MindSpore's own optimizers exempt names that contain beta or gamma.

    Raises:
        UserError: a hyperparameter that the rule refuses, a parameter that is not float32, a
            group entry that the rule has no field for.
    """

    rule_type: ClassVar[type[OptimizerSpec]]

    def __init__(
        self, parameters: Iterable[Any], learning_rate: Rate | None = None, **hyperparameters: Any
    ) -> None:
        name = self.rule_type.name
        if isinstance(learning_rate, int | float):
            hyperparameters.setdefault("lr", learning_rate)
        elif learning_rate is not None:
            hyperparameters.setdefault("lr", 1.0)  # unused: the rates are passed separately
        rule = rule_from({"name": name, **hyperparameters})
        parameters = [dict(p) if isinstance(p, dict) else p for p in parameters]
        learning_rate = unify_rates(rule.lr if learning_rate is None else learning_rate, parameters)
        decay = getattr(rule, "weight_decay", None)
        _check_groups(name, parameters, decay is not None)
        super().__init__(learning_rate, parameters, decay or 0.0)
        for p in self.parameters:
            if p.dtype != ms.float32:
                raise UserError(f"{name}: parameters must be float32; {p.name} is {p.dtype}")
        # Not nn.Optimizer.decay_weight: it exempts names that contain beta or gamma.
        self.decays = tuple(
            self.group_weight_decay if self.is_group else [decay or 0.0] * self.size
        )
        self.rule = rule
        for slot in rule.state_keys:
            start = self.initial_value(slot)
            setattr(self, slot, self.parameters.clone(prefix=slot, init=start))

    @property
    def size(self) -> int:
        """Number of parameter tensors of all groups."""
        return len(self.parameters)

    def initial_value(self, slot: str) -> Any:
        """Return the initial value of the state of this name: a number or an initializer; zeros
        unless the rule overrides it."""
        return "zeros"

    def state_unit(self, slot: str) -> float:
        """Return the factor of the stored state of this name relative to the rule's; 1 unless a
        kernel stores a multiple."""
        return 1.0

    def construct(self, gradients):
        """Make one update, in place, with one gradient per parameter (`ValueError` for another
        number); return True."""
        if len(gradients) != len(self.parameters):
            raise ValueError("an optimizer needs one gradient per parameter, in their order")
        rates = self.get_lr()
        ops.assign_add(self.global_step, self.global_step_increase_tensor)
        t = self.global_step.reshape(())
        if self.is_group_lr:
            for i in range(len(self.parameters)):
                self.update(i, gradients[i], self.decays[i], self.coefficients(rates[i], t))
        else:
            numbers = self.coefficients(rates, t)
            for i in range(len(self.parameters)):
                self.update(i, gradients[i], self.decays[i], numbers)
        return True

    def coefficients(self, lr, t):
        """Return the numbers of update ``t`` (an int32 scalar, from 1): scalars, as a tuple. Every
        rule defines this."""
        raise NotImplementedError

    def update(self, i, g, decay, numbers):
        """Apply the recurrence to parameter ``i`` with gradient ``g``: assign it and its state.

        ``decay`` is its weight decay, ``numbers`` the result of `coefficients`.
        """
        raise NotImplementedError


def _check_groups(name: str, parameters: list[Any], decays: bool) -> None:
    """Raise `UserError` for entries of parameter groups that the rule does not have; single
    parameters pass."""
    for group in parameters:
        if not isinstance(group, dict):
            continue
        if group.get("grad_centralization"):
            raise UserError(f"{name}: the rule has no gradient centralization")
        decay = group.get("weight_decay", 0.0)
        if not isinstance(decay, int | float) or not 0 <= decay < float("inf"):
            raise UserError(
                f"{name}: weight_decay of a group must be a number >= 0; received {decay!r}"
            )
        if decay and not decays:
            raise UserError(f"{name}: the rule has no weight decay; received weight_decay={decay}")


OPTIMIZERS: Registry[type[RuleOptimizer]] = Registry("optimizer", "dualml_ms.algorithms.optim")
