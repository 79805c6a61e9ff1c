"""Initial weights that were read from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Initial(NamedTuple):
    """Weights from a file, and the plan's record of the file: ``path``, ``bytes``, ``sha256``."""

    weights: dict[str, NDArray[np.float32]] = {}
    record: dict[str, str | int] = {}


#: Function of a path, and of parameter → shape, that reads the weights:
#: `dualml.runner.checkpoint.initial.read_initial`.
ReadInitial = Callable[[str, Mapping[str, tuple[int, ...]]], Initial]
