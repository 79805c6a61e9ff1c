"""The boundary between the core and a framework.

`BackendInfo` is what the parent process knows, `Backend` and `Training` are what every framework
does in a worker process, the classes of `ability` what some can do beyond that.
"""

from dualml.backend.ability import (
    Ability,
    Able,
    Divisible,
    Grouping,
    Layout,
    NativeParallel,
    Observable,
    Overlapping,
    Replicable,
    Staging,
)
from dualml.backend.base import Backend
from dualml.backend.info import Adopted, BackendInfo, backends, choose
from dualml.backend.pieces import Pieces, Summing
from dualml.backend.recipe import Array, Recipe
from dualml.backend.stage import Segment, Stage
from dualml.backend.training import (
    EVALUATED_AT_ONCE,
    Arrays,
    Trace,
    Training,
    batch_digest,
    chunks,
)

__all__ = [
    "EVALUATED_AT_ONCE",
    "Ability",
    "Able",
    "Adopted",
    "Array",
    "Arrays",
    "Backend",
    "BackendInfo",
    "Divisible",
    "Grouping",
    "Layout",
    "NativeParallel",
    "Observable",
    "Overlapping",
    "Pieces",
    "Recipe",
    "Replicable",
    "Segment",
    "Stage",
    "Staging",
    "Summing",
    "Trace",
    "Training",
    "backends",
    "batch_digest",
    "choose",
    "chunks",
]
