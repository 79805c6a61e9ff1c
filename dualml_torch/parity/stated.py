"""Settings that PyTorch modules state in their attributes."""

from __future__ import annotations

from typing import Any

import torch

from dualml.parity.models.stated import plain_settings


def module_settings(model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Return dotted name → settings of every module: the numbers, flags and short texts among its
    attributes, by name. The model itself has the empty name; attributes that every module has are
    left out."""
    framework = vars(torch.nn.Module()).keys()
    return {
        name: plain_settings(
            (key, value) for key, value in vars(one).items() if key not in framework
        )
        for name, one in model.named_modules()
    }
