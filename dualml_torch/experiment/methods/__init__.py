"""PyTorch training methods, one file each, all of them variations of the file ``single``.

A file's ``Method`` contains the whole method: its construction, and one update.
`dualml_torch.experiment.methods.training` feeds it a trial's batches and reads its weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from dualml.algorithms.communicator import Communicator
from dualml.backend import TrainingSpec
from dualml.experiment.methods import find_method as known
from dualml_torch.experiment.methods.training import TorchMethod


def make_method(
    name: str,
    recipe: TrainingSpec,
    device: torch.device,
    comm: Communicator | None,
    config: Mapping[str, Any] | None = None,
) -> TorchMethod:
    """Make a training method of PyTorch by name, see
    `dualml.experiment.methods.engine.EngineSupport`; all ranks call it. Unsupported if it is
    unknown or does not run here, or its engine is missing or of another version."""
    info = known("torch", name)
    info.check()
    file = importlib.import_module(f"{__name__}.{info.file or name}")
    return TorchMethod(file.Method, info, recipe, device, comm, config)
