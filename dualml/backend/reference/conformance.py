"""The reference's ``conformance`` module; see `dualml.backend.conformance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from dualml.algorithms.optim import OptimizerSpec
from dualml.backend.conformance import Mode
from dualml.common.errors import Unsupported

#: Empty: the optimizer specifications are what other backends' optimizers are compared with.
MODES: dict[str, Mode] = {}
COMPILES = False


def optimizers(
    rules: Mapping[str, OptimizerSpec],
    shapes: Mapping[str, tuple[int, ...]],
    mode: str,
    rates: Mapping[str, Sequence[float]] | None = None,
    device: str = "cpu",
) -> NoReturn:
    """Raise `Unsupported`, because the reference has no optimizers besides their specifications."""
    raise Unsupported("the NumPy reference has no optimizers but the rules themselves")


def settings() -> dict[str, str]:
    """Return an empty dict, because no capability changes the settings of this process."""
    return {}
