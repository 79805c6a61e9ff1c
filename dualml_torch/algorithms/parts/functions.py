"""Decompositions of activations, sums of products and other functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
#: Largest number of elements of an intermediate tensor that PyTorch's kernel does not need.
MAX_ELEMENTS = 1_000_000


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return the sum or mean (B, D) of the rows of ``weight`` whose indices a bag of ``input`` (B,
    N) holds, times ``per_sample_weights``, without those of ``padding_idx``. NotImplementedError:
    ``offsets``, ``max_norm``, ``scale_grad_by_freq`` or mode ``max``; other arguments are
    ignored."""
    if offsets is not None or max_norm is not None or scale_grad_by_freq or mode == "max":
        raise NotImplementedError
    rows = functional.embedding(input, weight, padding_idx)
    known = torch.ones_like(rows[..., :1])
    if padding_idx is not None:
        known = (input != padding_idx).to(rows.dtype).unsqueeze(-1)
        rows = rows * known
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return rows.sum(1) if mode == "sum" else rows.sum(1) / known.sum(1).clamp_min(1)


def einsum(equation: str, *operands: Any) -> Tensor:
    """Compute `torch.einsum` in two steps: multiply the operands element by element, then sum the
    axes that the output lacks. NotImplementedError: an implicit output, an ellipsis, a letter twice
    in an operand, or more than `MAX_ELEMENTS` products."""
    given, arrow, output = equation.replace(" ", "").partition("->")
    letters = given.split(",")
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not arrow or "." in given or any(len(set(one)) < len(one) for one in letters):
        raise NotImplementedError
    every = output + "".join(dict.fromkeys(c for c in given if c not in f"{output},"))
    sizes = {
        c: n
        for names, one in zip(letters, operands, strict=True)
        for c, n in zip(names, one.shape, strict=True)
    }
    if math.prod(sizes.values()) > MAX_ELEMENTS:
        raise NotImplementedError
    product = None
    for names, one in zip(letters, operands, strict=True):
        order = sorted(range(len(names)), key=lambda axis, names=names: every.index(names[axis]))
        one = one if order == list(range(len(names))) else one.permute(order)
        for axis, name in enumerate(every):
            if name not in names:
                one = one.unsqueeze(axis)
        product = one if product is None else product * one
    assert product is not None
    summed = tuple(range(len(output), len(every)))
    return product.sum(summed) if summed else product


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input·weightᵀ + bias by a product and a sum. NotImplementedError without a bias."""
    if bias is None:
        raise NotImplementedError
    return functional.linear(input, weight) + bias


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x·sigmoid(x) by two operations; ``inplace`` is ignored."""
    return input * input.sigmoid()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x·Φ(x) with the error function, or with the tanh approximation if ``approximate`` is
    ``tanh``; by single operations."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * input**3)
        return 0.5 * input * (1 + inner.tanh())
    return 0.5 * input * (1 + (input / math.sqrt(2)).erf())


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Split ``input`` in halves along ``dim`` and return the first times the sigmoid of the
    second."""
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return log(1 + exp(x)), which overflows to ∞ because ``threshold`` is ignored.
    NotImplementedError if ``beta`` is not 1."""
    if beta != 1:
        raise NotImplementedError
    return torch.log1p(input.exp())


def log_sigmoid(input: Tensor) -> Tensor:
    """Return the logarithm of sigmoid(x) by two operations, −∞ where the sigmoid underflows."""
    return input.sigmoid().log()


def softmax(input: Tensor, dim: int, _stacklevel: int = 3) -> Tensor:
    """Return exp(x − max x)/Σ exp(x − max x) along ``dim``."""
    powers = (input - input.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


def log_softmax(input: Tensor, dim: int, _stacklevel: int = 3) -> Tensor:
    """Return x minus its log-sum-exp along ``dim``."""
    return input - input.logsumexp(dim, keepdim=True)


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """Return the mean over height and width, (…, 1, 1). NotImplementedError for any other
    ``output_size``."""
    if output_size not in (1, (1, 1), [1, 1]):
        raise NotImplementedError
    return input.mean((-2, -1), keepdim=True)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange (B, C·n², H, W) to (B, C, H·n, W·n), with n = ``upscale_factor``."""
    b, c, h, w = input.shape
    n = upscale_factor
    blocks = input.reshape(b, c // n**2, n, n, h, w)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(b, c // n**2, h * n, w * n)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange (B, C, H·n, W·n) to (B, C·n², H, W), with n = ``downscale_factor``."""
    b, c, h, w = input.shape
    n = downscale_factor
    blocks = input.reshape(b, c, h // n, n, w // n, n)
    return blocks.permute(0, 1, 3, 5, 2, 4).reshape(b, c * n**2, h // n, w // n)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample images (B, C, H, W) bilinearly from the four pixels around each point (x, y) in [−1,
    1] of ``grid`` (B, rows, columns, 2); return (B, C, rows, columns). Pixels outside count as 0,
    unless ``padding_mode`` is ``border``. NotImplementedError: other modes, reflection or
    volumes."""
    if mode != "bilinear" or padding_mode == "reflection" or input.ndim != 4:
        raise NotImplementedError
    (b, c, h, w), (rows, columns) = input.shape, grid.shape[1:3]
    places = []
    for axis, size in ((1, h), (0, w)):
        place = (grid[..., axis] + 1) / 2
        place = place * (size - 1) if align_corners else place * size - 0.5
        places.append(place.clamp(0, size - 1) if padding_mode == "border" else place)
    y, x = places
    top, left = y.floor().detach(), x.floor().detach()
    flat, total = input.reshape(b, c, h * w), torch.zeros_like(input[:, :, :1, :1])
    for i, share_y in ((top, top + 1 - y), (top + 1, y - top)):
        for j, share_x in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (i >= 0) & (i <= h - 1) & (j >= 0) & (j <= w - 1)
            at = i.clamp(0, h - 1).long() * w + j.clamp(0, w - 1).long()
            index = at.reshape(b, 1, -1).expand(b, c, rows * columns)
            pixels = flat.gather(2, index).reshape(b, c, rows, columns)
            total = total + pixels * (share_y * share_x * inside).unsqueeze(1)
    return total
