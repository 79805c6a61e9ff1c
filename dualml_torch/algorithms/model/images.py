"""Modules of deeper image networks that `torch.nn` lacks."""

from __future__ import annotations

from torch import Tensor, nn


class GlobalAvgPool2d(nn.Module):
    """Global average pooling, (B, C, H, W) → (B, C): `nn.AdaptiveAvgPool2d(1)`, flattened."""

    def forward(self, x: Tensor) -> Tensor:
        """Return each channel's mean over height and width, (B, C)."""
        return x.mean((2, 3))
