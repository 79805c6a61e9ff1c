"""Conversion of a student's PyTorch tensors to arrays."""

from __future__ import annotations

from typing import Any

import torch


def copy_to_array(x: torch.Tensor) -> Any:
    """Return a copy of a tensor, with or without history, as an array; raise `AttributeError` or
    `TypeError` for what is no tensor, or none of a dtype that NumPy has."""
    return x.detach().cpu().numpy().copy()
