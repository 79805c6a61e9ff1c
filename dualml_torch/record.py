"""Recording of what a model computes on PyTorch, for a comparison on another machine."""

from __future__ import annotations

from dualml_torch.parity.recorder import Recorder

__all__ = ["Recorder"]
