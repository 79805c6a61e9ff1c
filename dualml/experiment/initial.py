"""Initial weights that a file decides, as the plan takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Initial(NamedTuple):
    """Weights from a file, and what the plan records of it: ``path``, ``bytes``, ``sha256``."""

    weights: dict[str, NDArray[np.float32]] = {}
    record: dict[str, str | int] = {}


#: Path, and parameter → shape → the weights: `dualml.checkpoint.initial.read_initial`.
ReadInitial = Callable[[str, Mapping[str, tuple[int, ...]]], Initial]
