"""Run a student's parameter server in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dualml.course.drive_server import run_server

Arrays = Mapping[str, Any]


def rows(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's parameter server class ``target`` of ``module``; ``3/table`` and
    ``3/weights`` on rank 0 are the parameters after update 3, ``3/loss`` on other ranks the loss
    that was returned, see `dualml.course.drive_server.run_server`."""

    def to_array(x: torch.Tensor) -> Any:
        return x.detach().numpy().copy()

    def to_tensor(a: Any) -> torch.Tensor:
        return torch.from_numpy(a.copy())

    make = getattr(module, target)
    return run_server(
        make, arrays, options, comm, to_array, to_tensor, lambda a, name: to_tensor(a)
    )
