"""Runs a student's aggregation in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np

from dualml.course.lab2.matched import Matched
from dualml.course.lab2.slow import Clock
from dualml.course.watched import Watched

Arrays = Mapping[str, Any]


def aggregate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``0``, ``1``, …: what comes of each tensor; ``sent/NAME``: elements of each call."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tensors = [ms.Tensor(arrays[k]) for k in arrays if k[0] == "t"]
    watched = Watched(comm, options["collectives"])
    more = [int(arrays["samples"])] if "samples" in arrays else []
    out = getattr(module, target)(watched, tensors, *more, **options.get("how", {}))
    kept = {str(i): t.asnumpy().copy() for i, t in enumerate(out)}
    return kept | {f"sent/{n}": e for n, e in watched.notes().items()}


def ring(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``sum``; ``messages``, ``elements`` that this rank sends; ``before``: the argument, after."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tensor = ms.Tensor(arrays["t"])
    comm.traffic.reset()
    ring = Matched(comm, lambda n: ms.Tensor([n], ms.int32))
    t = getattr(module, target)(ring, tensor)
    made = {"sum": t.asnumpy().copy(), "messages": np.array(comm.traffic.sent)}
    t = tensor
    return made | {"elements": np.array(ring.moved), "before": t.asnumpy().copy()}


def measured(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``seconds``: of each size, on a communicator whose times are known or, without ``alpha``, on
    the real one."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    real = Watched(comm, ("all_reduce", "barrier"))
    clock: Any = Clock(comm, options) if "alpha" in options else real
    return {"seconds": np.asarray(getattr(module, target)(clock, list(options["sizes"])))}
