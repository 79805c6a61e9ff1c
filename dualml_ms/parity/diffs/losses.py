"""Probes of losses in MindSpore."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import classes, normal


def cross_entropy() -> dict[str, NDArray]:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    weight = Tensor(np.abs(normal(5)))
    return {
        "mean": nn.CrossEntropyLoss()(logits, labels).asnumpy(),
        "weighted": nn.CrossEntropyLoss(weight=weight)(logits, labels).asnumpy(),
        "smoothed": nn.CrossEntropyLoss(weight, label_smoothing=0.1)(logits, labels).asnumpy(),
        "ignored": nn.CrossEntropyLoss(ignore_index=1)(logits, labels).asnumpy(),
        "shares": nn.CrossEntropyLoss()(logits, ops.softmax(2 * logits, -1)).asnumpy(),
    }


def cross_entropy_int64() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def cross_entropy_int64_equal() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8))
    return nn.CrossEntropyLoss()(logits, labels.astype(ms.int32)).asnumpy()


def cross_entropy_float64() -> NDArray:
    logits, labels = Tensor(normal(8, 5), ms.float64), Tensor(classes(5, 8), ms.int32)
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def cross_entropy_float64_equal() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def softmax_cross_entropy_reduction() -> NDArray:
    logits, shares = Tensor(normal(8, 5)), ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    return nn.SoftmaxCrossEntropyWithLogits()(logits, shares).asnumpy()


def softmax_cross_entropy_reduction_equal() -> NDArray:
    logits, shares = Tensor(normal(8, 5)), ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    return nn.SoftmaxCrossEntropyWithLogits(reduction="mean")(logits, shares).asnumpy()


def softmax_cross_entropy_labels() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    return nn.SoftmaxCrossEntropyWithLogits(reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_labels_equal() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_ignored() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    labels[0] = -100
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_ignored_equal() -> NDArray:
    logits, labels = Tensor(normal(8, 5)), Tensor(classes(5, 8), ms.int32)
    labels[0] = -100
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def smooth_l1_reduction() -> NDArray:
    return nn.SmoothL1Loss()(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_reduction_equal() -> NDArray:
    loss = nn.SmoothL1Loss(reduction="mean")
    return loss(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_beta() -> NDArray:
    loss = nn.SmoothL1Loss(beta=0.0, reduction="mean")
    return loss(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_beta_equal() -> NDArray:
    return nn.L1Loss()(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def mse_reduction() -> dict[str, NDArray]:
    a, b = Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))
    losses = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(delta=0.5)}
    return {name: loss(a, b).asnumpy() for name, loss in losses.items()}


def mse_broadcast() -> NDArray:
    return nn.MSELoss()(Tensor(normal(4, 1)), Tensor(normal(4))).asnumpy()


def mse_float64() -> NDArray:
    a, b = Tensor(normal(4, 3), ms.float64), Tensor(normal(4, 3, seed=1), ms.float64)
    return nn.MSELoss()(a, b).asnumpy()


def mse_float64_equal() -> NDArray:
    a, b = Tensor(normal(4, 3), ms.float64), Tensor(normal(4, 3, seed=1), ms.float64)
    return ops.square(a - b).mean().asnumpy()


def nll() -> NDArray:
    logs, labels = ops.log_softmax(Tensor(normal(8, 5)), -1), Tensor(classes(5, 8))
    return nn.NLLLoss(weight=Tensor(np.abs(normal(5))))(logs, labels).asnumpy()


def bce_saturated() -> NDArray:
    logits, labels = 200 * Tensor(normal(4)), ops.ones(4)
    return nn.BCELoss()(ops.sigmoid(logits), labels).asnumpy()


def bce_saturated_equal() -> NDArray:
    logits, labels = 200 * Tensor(normal(4)), ops.ones(4)
    return nn.BCEWithLogitsLoss()(logits, labels).asnumpy()


def bce_with_logits() -> NDArray:
    weight = Tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight)(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def bce_with_logits_equal() -> NDArray:
    weight = Tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight=weight)(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def bce_with_logits_pos_weight() -> NDArray:
    loss = nn.BCEWithLogitsLoss(pos_weight=Tensor(np.abs(normal(3))))
    return loss(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def kl_div_reduction() -> dict[str, NDArray]:
    logs = ops.log_softmax(Tensor(normal(8, 5)), -1)
    shares = ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    kinds = ("mean", "batchmean", "sum")
    return {kind: nn.KLDivLoss(reduction=kind)(logs, shares).asnumpy() for kind in kinds}


def kl_div_log_target() -> NDArray:
    logs, target = ops.log_softmax(Tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean", log_target=True)(logs, target).asnumpy()


def kl_div_log_target_equal() -> NDArray:
    logs, target = ops.log_softmax(Tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean")(logs, ops.exp(target)).asnumpy()


def cosine_embedding_zero() -> NDArray:
    a, b, same = ops.zeros((4, 3)), Tensor(normal(4, 3)), ops.ones(4, ms.int32)
    return nn.CosineEmbeddingLoss()(a, b, same).asnumpy()


def cosine_embedding_zero_equal() -> NDArray:
    a, b, same = ops.zeros((4, 3)), Tensor(normal(4, 3)), ops.ones(4, ms.int32)
    cosine = ops.cosine_similarity(a, b)
    return ops.where(same == 1, 1 - cosine, ops.relu(cosine)).mean().asnumpy()


def triplet_margin() -> NDArray:
    anchor, near, far = Tensor(normal(3, 4, 5))
    return nn.TripletMarginLoss(0.3)(anchor, near, far).asnumpy()


def triplet_margin_equal() -> NDArray:
    anchor, near, far = Tensor(normal(3, 4, 5))
    gap = ops.norm(anchor - near + 1e-6, dim=-1) - ops.norm(anchor - far + 1e-6, dim=-1)
    return ops.relu(gap + 0.3).mean().asnumpy()


def soft_margin() -> NDArray:
    x, labels = Tensor(normal(4, 3)), ops.sign(Tensor(normal(4, 3, seed=1)))
    return nn.SoftMarginLoss()(x, labels).asnumpy()


def soft_margin_equal() -> NDArray:
    x, labels = Tensor(normal(4, 3)), ops.sign(Tensor(normal(4, 3, seed=1)))
    return ops.softplus(-labels * x).mean().asnumpy()


def gaussian_nll_variance() -> NDArray:
    mean, target, variance = Tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, variance).asnumpy()


def gaussian_nll_variance_equal() -> NDArray:
    mean, target, variance = Tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, ops.softplus(variance)).asnumpy()


def ctc() -> dict[str, NDArray]:
    logs = ops.log_softmax(Tensor(normal(10, 3, 6)), -1)
    targets = Tensor(classes(5, 3, 4) + 1)
    lengths = Tensor([10, 9, 8]), Tensor([4, 3, 2])
    return {
        kind: nn.CTCLoss(reduction=kind)(logs, targets, *lengths).asnumpy()
        for kind in ("mean", "sum")
    }
