"""Probes of losses in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn, tensor

from dualml.parity.diffs.inputs import class_indices, normal


def cross_entropy() -> dict[str, NDArray]:
    """Run the probe "Cross-entropy, its weights and smoothing" in PyTorch and return five losses by
    name. `nn.CrossEntropyLoss`: the mean, with class weights, label smoothing, `ignore_index` −100,
    and shares instead of classes."""
    logits, labels = tensor(normal(8, 5)), tensor(class_indices(5, 8))
    weight = tensor(np.abs(normal(5)))
    return {
        "mean": nn.CrossEntropyLoss()(logits, labels).numpy(),
        "weighted": nn.CrossEntropyLoss(weight=weight)(logits, labels).numpy(),
        "smoothed": nn.CrossEntropyLoss(weight, label_smoothing=0.1)(logits, labels).numpy(),
        "ignored": nn.CrossEntropyLoss(ignore_index=1)(logits, labels).numpy(),
        "shares": nn.CrossEntropyLoss()(logits, torch.softmax(2 * logits, -1)).numpy(),
    }


def cross_entropy_int64() -> NDArray:
    """Run the probe "Type of the labels of cross-entropy" in PyTorch and return its result. Class
    numbers are int64."""
    logits, labels = tensor(normal(8, 5)), tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def cross_entropy_float64() -> NDArray:
    """Run the probe "Cross-entropy in float64" in PyTorch and return its result. Works."""
    logits, labels = tensor(normal(8, 5)).double(), tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def cross_entropy_float64_equal() -> NDArray:
    """Run the probe "Cross-entropy in float64" in PyTorch, written to agree with MindSpore, and
    return its result. Compare in float32; or `ops.log_softmax` and a sum by hand."""
    logits, labels = tensor(normal(8, 5)), tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def softmax_cross_entropy_reduction() -> NDArray:
    """Run the probe "Reduction of SoftmaxCrossEntropyWithLogits" in PyTorch and return the loss.
    `nn.CrossEntropyLoss()` averages."""
    logits, shares = tensor(normal(8, 5)), torch.softmax(tensor(normal(8, 5, seed=1)), -1)
    return nn.CrossEntropyLoss()(logits, shares).numpy()


def softmax_cross_entropy_labels() -> NDArray:
    """Run the probe "Labels of SoftmaxCrossEntropyWithLogits" in PyTorch and return its result.
    `nn.CrossEntropyLoss` takes class numbers."""
    logits, labels = tensor(normal(8, 5)), tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def softmax_cross_entropy_ignored() -> NDArray:
    """Run the probe "Ignored labels in SoftmaxCrossEntropyWithLogits" in PyTorch and return its
    result. Labels of −100 are left out of the mean."""
    logits, labels = tensor(normal(8, 5)), tensor(class_indices(5, 8))
    labels[0] = -100
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def smooth_l1_reduction() -> NDArray:
    """Run the probe "Reduction of the smooth L1 loss" in PyTorch and return the loss. The mean."""
    return nn.SmoothL1Loss()(tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))).numpy()


def smooth_l1_beta() -> NDArray:
    """Run the probe "Smooth L1 loss with beta 0" in PyTorch and return its result. Is the L1
    loss."""
    return nn.SmoothL1Loss(beta=0.0)(tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))).numpy()


def mse_reduction() -> dict[str, NDArray]:
    """Run the probe "Squared, absolute and Huber loss" in PyTorch and return three losses by name.
    `MSELoss`, `L1Loss` and `HuberLoss` average over all elements."""
    a, b = tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))
    losses = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(delta=0.5)}
    return {name: loss(a, b).numpy() for name, loss in losses.items()}


def mse_broadcast() -> NDArray:
    """Run the probe "Squared loss of shapes (N, 1) and (N)" in PyTorch and return its result.
    Broadcasts to (N, N), which is hardly ever meant, and warns."""
    return nn.MSELoss()(tensor(normal(4, 1)), tensor(normal(4))).numpy()


def mse_float64() -> NDArray:
    """Run the probe "Squared loss in float64" in PyTorch and return its result. Exact to
    float64."""
    a, b = tensor(normal(4, 3)).double(), tensor(normal(4, 3, seed=1)).double()
    return nn.MSELoss()(a, b).numpy()


def nll() -> NDArray:
    """Run the probe "Negative log-likelihood" in PyTorch and return its result. `nn.NLLLoss`
    averages with the class weights as weights."""
    logs, labels = torch.log_softmax(tensor(normal(8, 5)), -1), tensor(class_indices(5, 8))
    return nn.NLLLoss(weight=tensor(np.abs(normal(5))))(logs, labels).numpy()


def bce_saturated() -> NDArray:
    """Run the probe "Binary cross-entropy of saturated probabilities" in PyTorch and return its
    result. The logarithm is bounded by −100: a probability of 0 where 1 was right costs 100."""
    logits, labels = 200 * tensor(normal(4)), torch.ones(4)
    return nn.BCELoss()(torch.sigmoid(logits), labels).numpy()


def bce_saturated_equal() -> NDArray:
    """Run the probe "Binary cross-entropy of saturated probabilities" in PyTorch, written to agree
    with MindSpore, and return its result. Both: `nn.BCEWithLogitsLoss` of the logits."""
    logits, labels = 200 * tensor(normal(4)), torch.ones(4)
    return nn.BCEWithLogitsLoss()(logits, labels).numpy()


def bce_with_logits() -> NDArray:
    """Run the probe "First argument of BCEWithLogitsLoss" in PyTorch and return its result. By
    position it is `weight`."""
    weight = tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight)(tensor(normal(4, 3)), torch.ones(4, 3)).numpy()


def bce_with_logits_pos_weight() -> NDArray:
    """Run the probe "Weight of the positive class" in PyTorch and return its result. `pos_weight`
    multiplies the positive term."""
    loss = nn.BCEWithLogitsLoss(pos_weight=tensor(np.abs(normal(3))))
    return loss(tensor(normal(4, 3)), torch.ones(4, 3)).numpy()


def kl_div_reduction() -> dict[str, NDArray]:
    """Run the probe "Reductions of the KL divergence" in PyTorch and return the loss by reduction.
    `mean`, the default, divides by all elements (with a warning); `batchmean` is the divergence."""
    logs = torch.log_softmax(tensor(normal(8, 5)), -1)
    shares = torch.softmax(tensor(normal(8, 5, seed=1)), -1)
    kinds = ("mean", "batchmean", "sum")
    return {kind: nn.KLDivLoss(reduction=kind)(logs, shares).numpy() for kind in kinds}


def kl_div_log_target() -> NDArray:
    """Run the probe "KL divergence with logarithms as target" in PyTorch and return its result.
    `log_target=True`."""
    logs, target = torch.log_softmax(tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean", log_target=True)(logs, target).numpy()


def cosine_embedding_zero() -> NDArray:
    """Run the probe "Cosine embedding loss of a zero vector" in PyTorch and return its result. A
    small constant keeps it finite: the cosine is 0."""
    a, b, same = torch.zeros(4, 3), tensor(normal(4, 3)), torch.ones(4)
    return nn.CosineEmbeddingLoss()(a, b, same).numpy()


def triplet_margin() -> NDArray:
    """Run the probe "Triplet margin loss" in PyTorch and return its result.
    `nn.TripletMarginLoss(0.3)` sets the margin."""
    anchor, near, far = tensor(normal(3, 4, 5))
    return nn.TripletMarginLoss(0.3)(anchor, near, far).numpy()


def soft_margin() -> NDArray:
    """Run the probe "Soft margin loss on a CPU" in PyTorch and return its result. Works."""
    x, labels = tensor(normal(4, 3)), torch.sign(tensor(normal(4, 3, seed=1)))
    return nn.SoftMarginLoss()(x, labels).numpy()


def gaussian_nll_variance() -> NDArray:
    """Run the probe "Gaussian likelihood with a negative variance" in PyTorch, where it raises
    ValueError; else return its result. Raises an error."""
    mean, target, variance = tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, variance).numpy()


def gaussian_nll_variance_equal() -> NDArray:
    """Run the probe "Gaussian likelihood with a negative variance" in PyTorch, written to agree
    with MindSpore, and return its result. Make the variance positive: softplus or exp of what the
    network gives."""
    mean, target, variance = tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, F.softplus(variance)).numpy()


def ctc() -> dict[str, NDArray]:
    """Run the probe "CTC loss" in PyTorch and return the loss by reduction. `mean` divides each
    loss by the length of its target first."""
    logs = torch.log_softmax(tensor(normal(10, 3, 6)), -1)
    targets, lengths = tensor(class_indices(5, 3, 4)) + 1, (tensor([10, 9, 8]), tensor([4, 3, 2]))
    return {
        kind: nn.CTCLoss(reduction=kind)(logs, targets, *lengths).numpy()
        for kind in ("mean", "sum")
    }
