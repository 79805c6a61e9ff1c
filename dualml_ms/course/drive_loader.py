"""Run a student's loader in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms

from dualml.course.drive_loader import SampleReader, run_loaders

Arrays = Mapping[str, Any]


def read_tensor(value: Any) -> Any:
    """Return a tensor as an array; raise `TypeError` for anything else."""
    if not isinstance(value, ms.Tensor):
        raise TypeError(f"expected batches of tensors, received {type(value).__name__}")
    return value.asnumpy()


def loader(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's loader on the samples ``x``, ``y`` of ``arrays``; the result is that of
    `dualml.course.drive_loader.run_loaders`."""
    h = options["hyper"]

    def make_loader(rank: int, seed: int) -> Any:
        x, y = arrays["x"].copy(), arrays["y"].copy()
        made = getattr(module, target)
        return made(x, y, h["batch"], rank, h["ranks"], seed, drop_last=h["drop_last"])

    reader = SampleReader(arrays["x"], arrays["y"], read_tensor)
    return run_loaders(make_loader, reader, options, lambda: None)
