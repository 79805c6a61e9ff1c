"""Decompositions of normalizations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Return ``input`` divided by its Euclidean norm along ``dim``, a norm below ``eps`` counting
    as ``eps``. NotImplementedError if ``p`` is not 2."""
    if p != 2:
        raise NotImplementedError
    return input / input.square().sum(dim, keepdim=True).sqrt().clamp_min(eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine between ``x1`` and ``x2`` along ``dim``; each norm is at least ``eps``."""
    length, other = (one.square().sum(dim).sqrt().clamp_min(eps) for one in (x1, x2))
    return (x1 * x2).sum(dim) / (length * other)


def standardize(input: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Return (x − mean)/√(var + eps), with mean and biased variance over ``axes``."""
    centred = input - input.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True) + eps).sqrt()


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize ``input`` over its last axes, which ``normalized_shape`` names, then apply
    ``weight`` and ``bias``, if given."""
    output = standardize(input, tuple(range(-len(normalized_shape), 0)), eps)
    output = output if weight is None else output * weight
    return output if bias is None else output + bias


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize every group of channels of ``input`` (N, C, …) per sample, then apply ``weight``
    and ``bias`` (C,), if given."""
    groups = input.reshape(input.shape[0], num_groups, -1)
    return apply_affine(standardize(groups, (-1,), eps).reshape(input.shape), weight, bias)


def apply_affine(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Multiply ``input`` (N, C, …) per channel by ``weight`` (C,) and add ``bias`` (C,); None:
    leave out."""
    shape = (1, -1, *[1] * (input.ndim - 2))
    output = input if weight is None else input * weight.reshape(shape)
    return output if bias is None else output + bias.reshape(shape)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Standardize ``input`` (N, C, …) per channel, then apply ``weight`` and ``bias``. In training
    by the batch's mean and biased variance, which also update the running ones in place (the
    variance unbiased); else by the running ones. NotImplementedError: training with ``momentum``
    None."""
    shape = (1, -1, *[1] * (input.ndim - 2))
    if not training:
        assert running_mean is not None
        assert running_var is not None
        centred = input - running_mean.reshape(shape)
        return apply_affine(centred / (running_var + eps).sqrt().reshape(shape), weight, bias)
    if momentum is None:
        raise NotImplementedError
    axes = [axis for axis in range(input.ndim) if axis != 1]
    mean = input.mean(axes)
    centred = input - mean.reshape(shape)
    var = centred.square().mean(axes)
    if running_mean is not None and running_var is not None:
        many = input.numel() // input.shape[1]
        with torch.no_grad():
            running_mean.copy_((1 - momentum) * running_mean + momentum * mean)
            running_var.copy_((1 - momentum) * running_var + momentum * var * (many / (many - 1)))
    return apply_affine(centred / (var + eps).sqrt().reshape(shape), weight, bias)
