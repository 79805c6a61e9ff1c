"""Runs a student's aggregation in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.lab2.matched import Matched
from dualml.course.lab2.slow import Clock
from dualml.course.watched import Watched

Arrays = Mapping[str, Any]


def aggregate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``0``, ``1``, …: what comes of each tensor; ``sent/NAME``: elements of each call."""
    tensors = [torch.from_numpy(arrays[k].copy()) for k in arrays if k[0] == "t"]
    watched = Watched(comm, options["collectives"])
    more = [int(arrays["samples"])] if "samples" in arrays else []
    out = getattr(module, target)(watched, tensors, *more, **options.get("how", {}))
    kept = {str(i): t.detach().numpy().copy() for i, t in enumerate(out)}
    return kept | {f"sent/{n}": e for n, e in watched.notes().items()}


def ring(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``sum``; ``messages``, ``elements`` that this rank sends; ``before``: the argument, after."""
    tensor = torch.from_numpy(arrays["t"].copy())
    comm.traffic.reset()
    ring = Matched(comm, lambda n: torch.tensor([n]))
    t = getattr(module, target)(ring, tensor)
    made = {"sum": t.detach().numpy().copy(), "messages": np.array(comm.traffic.sent)}
    t = tensor
    return made | {"elements": np.array(ring.moved), "before": t.detach().numpy().copy()}


def measured(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``seconds``: of each size, on a communicator whose times are known or, without ``alpha``, on
    the real one."""
    real = Watched(comm, ("all_reduce", "barrier"))
    clock: Any = Clock(comm, options) if "alpha" in options else real
    return {"seconds": np.asarray(getattr(module, target)(clock, list(options["sizes"])))}
