"""Decompositions of losses."""

from __future__ import annotations

import torch
from torch.nn import functional

Tensor = torch.Tensor


def apply_reduction(each: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of the losses ``each`` if ``reduction`` is ``mean`` or ``sum``,
    otherwise ``each`` itself."""
    return {"mean": each.mean, "sum": each.sum}.get(reduction, lambda: each)()


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the squared differences of ``input`` and ``target``, reduced."""
    return apply_reduction((input - target).square(), reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the absolute differences of ``input`` and ``target``, reduced."""
    return apply_reduction((input - target).abs(), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Return d²/(2β) where d = |input − target| is below β, else d − β/2, reduced."""
    far = (input - target).abs()
    return apply_reduction(
        torch.where(far < beta, 0.5 * far.square() / beta, far - 0.5 * beta), reduction
    )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """Return −(t·log p + (1 − t)·log(1 − p)) for probabilities ``input``, times ``weight`` if
    given, reduced; the logarithms are not clamped."""
    each = -(target * input.log() + (1 - target) * (1 - input).log())
    return apply_reduction(each if weight is None else each * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the binary cross entropy of logits ``input``, reduced; ``pos_weight`` multiplies the
    terms target·log p, ``weight`` the whole losses."""
    ones = target * functional.logsigmoid(input)
    if pos_weight is not None:
        ones = pos_weight * ones
    each = -(ones + (1 - target) * functional.logsigmoid(-input))
    return apply_reduction(each if weight is None else each * weight, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative log-probabilities ``input`` (N, C, …) or (C,) of the target classes, each
    times its class's ``weight`` (C,), reduced; the mean divides by the sum of these weights.
    Targets ``ignore_index`` give 0 and do not count."""
    known = target != ignore_index
    classes = target.masked_fill(~known, 0)
    each = -input.gather(min(1, input.ndim - 1), classes.unsqueeze(min(1, input.ndim - 1)))
    counts = known.to(input.dtype)
    if weight is not None:
        counts = counts * weight[classes]
    each = each.squeeze(min(1, input.ndim - 1)) * counts
    return each.sum() / counts.sum() if reduction == "mean" else apply_reduction(each, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits ``input`` (N, C, …) or (C,) and target classes or
    probabilities, reduced. NotImplementedError: label smoothing with weights or ignored labels."""
    if label_smoothing and (weight is not None or (target == ignore_index).any()):
        raise NotImplementedError
    axis = min(1, input.ndim - 1)
    logs = functional.log_softmax(input, axis)
    if target.is_floating_point():
        target = (1 - label_smoothing) * target + label_smoothing / input.shape[axis]
        each = -(target * (logs if weight is None else logs * weight)).sum(axis)
        return apply_reduction(each, reduction)
    of_class = nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return of_class
    smooth = apply_reduction(-logs.mean(axis), reduction)
    return (1 - label_smoothing) * of_class + label_smoothing * smooth


def kl_div(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Return target·(log target − input) for log-probabilities ``input``, reduced; ``batchmean``
    divides the sum by the number of samples. A target probability of 0 gives nan; with
    ``log_target`` the targets are logarithms."""
    logs = target if log_target else target.log()
    each = (target.exp() if log_target else target) * (logs - input)
    return each.sum() / len(input) if reduction == "batchmean" else apply_reduction(each, reduction)
