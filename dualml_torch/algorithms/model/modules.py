"""Modules that `torch.nn` lacks, or whose inputs or outputs differ there.

Shapes: B batch, T positions, D features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bias(nn.Module):
    """Add a bias: per channel of images (B, C, H, W), along the last axis of anything else."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the bias: per channel if ``x`` is 4-D, else along the last axis."""
        return x + (self.bias[:, None, None] if x.dim() == 4 else self.bias)


class Embedding(nn.Module):
    """Look up rows of ``weight``; tokens outside of [first, first + words) give zeros and no
    gradient."""

    def __init__(self, words: int, features: int, first: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(words, features))
        self.first = first

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings (…, D) of integer tokens (…), zeros for tokens outside of the
        table."""
        row = tokens - self.first
        here = (row >= 0) & (row < len(self.weight))
        return functional.embedding(row * here, self.weight) * here.unsqueeze(-1)


class Attention(nn.Module):
    """Multi-head attention; written out on a GPU, whose fused kernels are not all deterministic."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor, here: Tensor | None = None) -> Tensor:
        """Return the attention outputs (B, T, D) of ``x`` (B, T, 3·D), which holds queries, keys
        and values, D each. Keys where ``here`` (B, T) is False are masked (None: none), and later
        positions if the module is causal."""
        b, length, width = x.shape
        # B heads T d each
        q, k, v = x.view(b, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = None if here is None else here[:, None, None]
        if self.causal and (seen is not None or not x.is_cpu):
            before = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            seen = before if seen is None else seen & before
        if x.is_cpu:
            alone = self.causal and seen is None
            y = functional.scaled_dot_product_attention(q, k, v, seen, is_causal=alone)
            return y.transpose(1, 2).reshape(b, length, width // 3)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if seen is not None:
            scores = scores.masked_fill(~seen, -math.inf)
        y = scores.softmax(-1) @ v
        return y.transpose(1, 2).reshape(b, length, width // 3)


class Position(nn.Module):
    """Add learned position embeddings: (B, T, D) + ``weight`` (T, D)."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(length, features))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (B, T, D) plus the embedding of each position."""
        return x + self.weight


class Rows(nn.Module):
    """Treat the rows of an image as a sequence, (B, 1, H, W) → (B, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop the channel axis: (B, 1, H, W) → (B, H, W)."""
        return x.squeeze(1)


class MeanPool(nn.Module):
    """Average over the positions where the mask ``here`` is True, (B, T, D) → (B, D)."""

    def forward(self, x: Tensor, here: Tensor | None = None) -> Tensor:
        """Return the mean (B, D) of ``x`` over the positions where ``here`` (B, T) is True, nan
        where none is; None: over all positions."""
        if here is None:
            return x.mean(1)
        share = here / here.sum(1, keepdim=True)
        return (x * share.unsqueeze(-1)).sum(1)


class First(nn.Module):
    """Take the first position, (B, T, D) → (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (B, D) of each sequence's first position."""
        return x[:, 0]
