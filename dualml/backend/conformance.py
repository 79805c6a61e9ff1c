"""Interface of the module ``conformance`` that a backend ships for the conformance suite.

The suite (tests/conformance) builds trainings, parts of models and groups of ranks through the
backend interface itself. This module provides what the interface does not cover. Importing it does
not import the framework.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dualml.algorithms.optim.base import OptimizerSpec
from dualml.backend.info import BackendInfo
from dualml.backend.training_spec import Array

Params = dict[str, Array]
#: (parameters, step from 1) → their gradient.
Gradient = Callable[[Params, int], Params]


@dataclass(frozen=True)
class Mode:
    """One way of running the optimizers.

    Attributes:
        dtype: the type that they compute in.
        costly: whether preparing an optimizer takes seconds; the suite then tests few of them.
        steps: maximum number of updates per optimizer; fewer where each takes long.
    """

    dtype: str = "float32"
    costly: bool = False
    steps: int = 30


class OptimizerResult(NamedTuple):
    """Final state of an optimizer: parameters, and state key → parameter name → array."""

    parameters: Params
    state: dict[str, Params]


class Optimizers(Protocol):
    """One optimizer for each of several specifications, each with its own parameters."""

    def run(self, start: Params, gradient: Gradient, steps: int) -> dict[str, OptimizerResult]:
        """Apply ``steps`` updates from the parameters ``start`` and a fresh state.
        ``gradient(parameters, step)`` is called before every update. Return optimizer name → final
        parameters and optimizer state."""


class Adapter(Protocol):
    """Interface of a backend's ``conformance`` module.

    Attributes:
        MODES: ways of running the optimizers; empty for the backend that the suite compares with.
        COMPILES: whether each new shape of a model takes seconds to compile; the suite then uses
            few shapes.
    """

    MODES: Mapping[str, Mode]
    COMPILES: bool

    def optimizers(
        self,
        rules: Mapping[str, OptimizerSpec],
        shapes: Mapping[str, tuple[int, ...]],
        mode: str,
        rates: Mapping[str, Sequence[float]] | None = None,
        device: str = "cpu",
    ) -> Optimizers:
        """Return optimizers that run in ``mode``.

        Args:
            rules: name → optimizer specification.
            shapes: parameter name → shape; each optimizer has its own copy of these parameters.
            mode: key of `MODES`.
            rates: name → learning rate of each update; without it the specification's own.
            device: where they compute, as `BackendInfo.create` takes it.
        """

    def settings(self) -> Mapping[str, str]:
        """Return name → value of the settings of this process that a capability may change
        temporarily and must restore; the suite compares them before and after."""


def load_adapter(info: BackendInfo) -> Adapter:
    """Import and return the module ``conformance`` of a backend's package, which is its
    `Adapter`."""
    module: Adapter = importlib.import_module(f"{info.package}.conformance")
    return module
