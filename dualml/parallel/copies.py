"""Weights that several ranks hold, and which of them must be equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

#: Weights of the ranks that must be equal: all of them (``replicas``), all after an averaging
#: (``averaged``), those of the server and of the rank that it served last (``served``), those of
#: ranks that hold the same part (``parts``), or none: with ``neighbours`` only neighbours average,
#: and with ``shards`` and ``stages`` each rank has its own.
Promise = Literal["replicas", "averaged", "served", "parts", "neighbours", "shards", "stages"]


@dataclass(frozen=True)
class WeightCopies:
    """Weights that a rank holds and that must agree with those of other ranks.

    Attributes:
        arrays: key → array; two ranks that share a key must hold equal arrays.
        ranks: ranks whose arrays are compared; None for all.
    """

    arrays: Mapping[str, NDArray[Any]]
    ranks: Sequence[int] | None = None
