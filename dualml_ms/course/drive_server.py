"""Run a student's parameter server in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms

from dualml.course.drive_server import run_server

Arrays = Mapping[str, Any]


def rows(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's parameter server; ``3/table`` and ``3/weights`` on rank 0 are the parameters
    after update 3, ``3/loss`` on other ranks the loss that was returned, see
    `dualml.course.drive_server.run_server`."""
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def to_array(x: ms.Tensor) -> Any:
        return x.asnumpy().copy()

    def to_parameter(a: Any, name: str) -> ms.Parameter:
        return ms.Parameter(ms.Tensor(a), name=name)

    make = getattr(module, target)
    return run_server(make, arrays, options, comm, to_array, ms.Tensor, to_parameter)
