"""Remove PyTorch's compiled optimizers from the process in which students' code runs."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from dualml.course.guards import make_refusal

FUSED = tuple(f"aten::_fused_{name}" for name in ("adam", "adamw", "sgd", "adagrad"))


def seal() -> None:
    """Make PyTorch's fused Adam, AdamW, SGD and AdaGrad raise an error on the CPU for the rest of
    this process, whatever name they are called by.

    The dispatcher calls the refusal in place of its own kernels. The handle that could restore
    them is not reachable from Python.
    """
    handle: Any = torch._C._dispatch_library("IMPL", "aten", "", __file__, 1)
    for name in torch._C._dispatch_get_all_op_names():
        base = name.partition(".")[0]
        if base.rstrip("_") in FUSED:
            dotted = f"torch.ops.{base.replace('::', '.')}"
            handle.impl(name.removeprefix("aten::"), "CPU", make_refusal(dotted))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
