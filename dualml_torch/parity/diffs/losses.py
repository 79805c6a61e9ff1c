"""Probes of losses in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn, tensor

from dualml.parity.diffs.inputs import classes, normal


def cross_entropy() -> dict[str, NDArray]:
    logits, labels = tensor(normal(8, 5)), tensor(classes(5, 8))
    weight = tensor(np.abs(normal(5)))
    return {
        "mean": nn.CrossEntropyLoss()(logits, labels).numpy(),
        "weighted": nn.CrossEntropyLoss(weight=weight)(logits, labels).numpy(),
        "smoothed": nn.CrossEntropyLoss(weight, label_smoothing=0.1)(logits, labels).numpy(),
        "ignored": nn.CrossEntropyLoss(ignore_index=1)(logits, labels).numpy(),
        "shares": nn.CrossEntropyLoss()(logits, torch.softmax(2 * logits, -1)).numpy(),
    }


def cross_entropy_int64() -> NDArray:
    logits, labels = tensor(normal(8, 5)), tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def cross_entropy_float64() -> NDArray:
    logits, labels = tensor(normal(8, 5)).double(), tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def cross_entropy_float64_equal() -> NDArray:
    logits, labels = tensor(normal(8, 5)), tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def softmax_cross_entropy_reduction() -> NDArray:
    logits, shares = tensor(normal(8, 5)), torch.softmax(tensor(normal(8, 5, seed=1)), -1)
    return nn.CrossEntropyLoss()(logits, shares).numpy()


def softmax_cross_entropy_labels() -> NDArray:
    logits, labels = tensor(normal(8, 5)), tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def softmax_cross_entropy_ignored() -> NDArray:
    logits, labels = tensor(normal(8, 5)), tensor(classes(5, 8))
    labels[0] = -100
    return nn.CrossEntropyLoss()(logits, labels).numpy()


def smooth_l1_reduction() -> NDArray:
    return nn.SmoothL1Loss()(tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))).numpy()


def smooth_l1_beta() -> NDArray:
    return nn.SmoothL1Loss(beta=0.0)(tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))).numpy()


def mse_reduction() -> dict[str, NDArray]:
    a, b = tensor(normal(4, 3)), tensor(normal(4, 3, seed=1))
    losses = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(delta=0.5)}
    return {name: loss(a, b).numpy() for name, loss in losses.items()}


def mse_broadcast() -> NDArray:
    return nn.MSELoss()(tensor(normal(4, 1)), tensor(normal(4))).numpy()


def mse_float64() -> NDArray:
    a, b = tensor(normal(4, 3)).double(), tensor(normal(4, 3, seed=1)).double()
    return nn.MSELoss()(a, b).numpy()


def nll() -> NDArray:
    logs, labels = torch.log_softmax(tensor(normal(8, 5)), -1), tensor(classes(5, 8))
    return nn.NLLLoss(weight=tensor(np.abs(normal(5))))(logs, labels).numpy()


def bce_saturated() -> NDArray:
    logits, labels = 200 * tensor(normal(4)), torch.ones(4)
    return nn.BCELoss()(torch.sigmoid(logits), labels).numpy()


def bce_saturated_equal() -> NDArray:
    logits, labels = 200 * tensor(normal(4)), torch.ones(4)
    return nn.BCEWithLogitsLoss()(logits, labels).numpy()


def bce_with_logits() -> NDArray:
    weight = tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight)(tensor(normal(4, 3)), torch.ones(4, 3)).numpy()


def bce_with_logits_pos_weight() -> NDArray:
    loss = nn.BCEWithLogitsLoss(pos_weight=tensor(np.abs(normal(3))))
    return loss(tensor(normal(4, 3)), torch.ones(4, 3)).numpy()


def kl_div_reduction() -> dict[str, NDArray]:
    logs = torch.log_softmax(tensor(normal(8, 5)), -1)
    shares = torch.softmax(tensor(normal(8, 5, seed=1)), -1)
    kinds = ("mean", "batchmean", "sum")
    return {kind: nn.KLDivLoss(reduction=kind)(logs, shares).numpy() for kind in kinds}


def kl_div_log_target() -> NDArray:
    logs, target = torch.log_softmax(tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean", log_target=True)(logs, target).numpy()


def cosine_embedding_zero() -> NDArray:
    a, b, same = torch.zeros(4, 3), tensor(normal(4, 3)), torch.ones(4)
    return nn.CosineEmbeddingLoss()(a, b, same).numpy()


def triplet_margin() -> NDArray:
    anchor, near, far = tensor(normal(3, 4, 5))
    return nn.TripletMarginLoss(0.3)(anchor, near, far).numpy()


def soft_margin() -> NDArray:
    x, labels = tensor(normal(4, 3)), torch.sign(tensor(normal(4, 3, seed=1)))
    return nn.SoftMarginLoss()(x, labels).numpy()


def gaussian_nll_variance() -> NDArray:
    mean, target, variance = tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, variance).numpy()


def gaussian_nll_variance_equal() -> NDArray:
    mean, target, variance = tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, F.softplus(variance)).numpy()


def ctc() -> dict[str, NDArray]:
    logs = torch.log_softmax(tensor(normal(10, 3, 6)), -1)
    targets, lengths = tensor(classes(5, 3, 4)) + 1, (tensor([10, 9, 8]), tensor([4, 3, 2]))
    return {
        kind: nn.CTCLoss(reduction=kind)(logs, targets, *lengths).numpy()
        for kind in ("mean", "sum")
    }
