"""Recording of what a model computes on MindSpore, for a comparison on another machine."""

from __future__ import annotations

from dualml_ms.parity.recorder import Recorder

__all__ = ["Recorder"]
