"""MindSpore training methods, one file each, all of them variations of the file ``single``.

A file's ``Method`` contains the whole method: its construction, and one update as a cell that is
compiled as one graph. `dualml_ms.experiment.methods.training` feeds it a trial's batches and reads
its weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dualml.algorithms.communicator import Communicator
from dualml.backend import TrainingSpec
from dualml.common.errors import Unsupported
from dualml.experiment.methods import find_method as known
from dualml_ms.experiment.methods.training import MindSporeMethod


def make_method(
    name: str,
    recipe: TrainingSpec,
    comm: Communicator | None,
    config: Mapping[str, Any] | None = None,
) -> MindSporeMethod:
    """Make the MindSpore training method ``name``, see
    `dualml.experiment.methods.engine.EngineSupport`; all ranks call it. Raise `Unsupported` for a
    method that MindSpore does not have or that does not run here, and for a ``config`` that is not
    empty."""
    info = known("mindspore", name)
    info.check()
    if config:
        raise Unsupported(f"{info.title} has no configuration of its own: leave out method_config")
    file = importlib.import_module(f"{__name__}.{info.file or name}")
    return MindSporeMethod(file.Method, info, recipe, comm)
