"""What a backend ships for the conformance suite: the module ``conformance`` of its package.

The suite (tests/conformance) makes trainings, parts of models and groups of ranks through the
boundary itself. For what the boundary has no words it asks this module. Importing it does not
import the framework.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dualml.backend.info import BackendInfo
from dualml.backend.recipe import Array
from dualml.optim.base import Rule

Params = dict[str, Array]
#: (parameters, step from 1) → their gradient.
Gradient = Callable[[Params, int], Params]


@dataclass(frozen=True)
class Mode:
    """A way of running the optimizers.

    Attributes:
        dtype: the type it computes in.
        costly: whether every rule takes seconds to prepare: the suite then takes few of them.
        steps: updates that a rule is run for at most; fewer where each of them takes long.
    """

    dtype: str = "float32"
    costly: bool = False
    steps: int = 30


class End(NamedTuple):
    """Where an optimizer has arrived: parameters, and slot → name → state."""

    parameters: Params
    state: dict[str, Params]


class Optimizers(Protocol):
    """One optimizer for each of several rules, each with parameters of its own."""

    def run(self, start: Params, gradient: Gradient, steps: int) -> dict[str, End]:
        """Where each of them is after ``steps`` updates from ``start`` and from fresh state."""


class Adapter(Protocol):
    """What the module has.

    Attributes:
        MODES: ways of running the optimizers; none where they are the suite's own yardstick.
        COMPILES: whether every shape of a model that is met for the first time takes seconds: the
            suite then takes few of them.
    """

    MODES: Mapping[str, Mode]
    COMPILES: bool

    def optimizers(
        self,
        rules: Mapping[str, Rule],
        shapes: Mapping[str, tuple[int, ...]],
        mode: str,
        rates: Mapping[str, Sequence[float]] | None = None,
        device: str = "cpu",
    ) -> Optimizers:
        """Optimizers in a mode.

        Args:
            rules: name → rule.
            shapes: of the parameters that each of them has.
            rates: name → the step size of each update; without them that of the rule.
            device: where they compute, as `BackendInfo.create` takes it.
        """

    def settings(self) -> Mapping[str, str]:
        """Settings of this process that an ability may need otherwise, and has to leave as they
        were."""


def adapter(info: BackendInfo) -> Adapter:
    """The module of a backend."""
    module: Adapter = importlib.import_module(f"{info.package}.conformance")
    return module
