"""PyTorch's side of the pairs: torchvision, timm and transformers, without their operators in C++.

torchvision's wheel of the index may be one for CUDA, which does not load beside a PyTorch for the
CPU; its models need none of the operators that are missing then.
"""

import contextlib

from torch.library import Library

with contextlib.suppress(RuntimeError):
    namespace = Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        namespace.define(f"{name}(Tensor dets, Tensor scores, float t) -> Tensor")

import timm  # noqa: F401
import torchvision  # noqa: F401
