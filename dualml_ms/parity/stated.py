"""Settings that MindSpore cells state in their attributes."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from dualml.parity.models.stated import plain_settings


def module_settings(model: nn.Cell) -> dict[str, dict[str, Any]]:
    """Return dotted name → settings of every cell: the numbers, flags and short texts among its
    attributes, by name. The model itself has the empty name; attributes that every cell has are
    left out."""
    framework = vars(nn.Cell()).keys()
    return {
        name: plain_settings(
            (key, value) for key, value in vars(one).items() if key not in framework
        )
        for name, one in model.cells_and_names()
    }
