"""Takes away what PyTorch has compiled of the optimizers that students write."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from dualml.course.guards import make_refusal

FUSED = tuple(f"aten::_fused_{name}" for name in ("adam", "adamw", "sgd", "adagrad"))


def seal() -> None:
    """Let the fused optimizers refuse to work, under whatever name they are called.

    The dispatcher calls this in place of its own kernels. The handle that would bring those back
    is held by nobody who could be asked for it.
    """
    handle: Any = torch._C._dispatch_library("IMPL", "aten", "", __file__, 1)
    for name in torch._C._dispatch_get_all_op_names():
        base = name.partition(".")[0]
        if base.rstrip("_") in FUSED:
            dotted = f"torch.ops.{base.replace('::', '.')}"
            handle.impl(name.removeprefix("aten::"), "CPU", make_refusal(dotted))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
