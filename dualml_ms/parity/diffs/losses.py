"""Probes of losses in MindSpore."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import class_indices, normal


def cross_entropy() -> dict[str, NDArray]:
    """Run the probe "Cross-entropy, its weights and smoothing" in MindSpore and return five losses
    by name. As in PyTorch: formula and defaults under the same name."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    weight = Tensor(np.abs(normal(5)))
    return {
        "mean": nn.CrossEntropyLoss()(logits, labels).asnumpy(),
        "weighted": nn.CrossEntropyLoss(weight=weight)(logits, labels).asnumpy(),
        "smoothed": nn.CrossEntropyLoss(weight, label_smoothing=0.1)(logits, labels).asnumpy(),
        "ignored": nn.CrossEntropyLoss(ignore_index=1)(logits, labels).asnumpy(),
        "shares": nn.CrossEntropyLoss()(logits, ops.softmax(2 * logits, -1)).asnumpy(),
    }


def cross_entropy_int64() -> NDArray:
    """Run the probe "Type of the labels of cross-entropy" in MindSpore, where it raises TypeError;
    else return its result. `nn.CrossEntropyLoss` raises an error for int64, which is what NumPy
    gives; it wants int32."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def cross_entropy_int64_equal() -> NDArray:
    """Run the probe "Type of the labels of cross-entropy" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: `labels.astype(ms.int32)`."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8))
    return nn.CrossEntropyLoss()(logits, labels.astype(ms.int32)).asnumpy()


def cross_entropy_float64() -> NDArray:
    """Run the probe "Cross-entropy in float64" in MindSpore, where it raises TypeError; else return
    its result. Raises an error: the logits are float16 or float32."""
    logits, labels = Tensor(normal(8, 5), ms.float64), Tensor(class_indices(5, 8), ms.int32)
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def cross_entropy_float64_equal() -> NDArray:
    """Run the probe "Cross-entropy in float64" in MindSpore, written to agree with PyTorch, and
    return its result. Compare in float32; or `ops.log_softmax` and a sum by hand."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def softmax_cross_entropy_reduction() -> NDArray:
    """Run the probe "Reduction of SoftmaxCrossEntropyWithLogits" in MindSpore and return the loss.
    `nn.SoftmaxCrossEntropyWithLogits()` gives one loss for each sample (`reduction='none'`); the
    gradient is then that of the sum."""
    logits, shares = Tensor(normal(8, 5)), ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    return nn.SoftmaxCrossEntropyWithLogits()(logits, shares).asnumpy()


def softmax_cross_entropy_reduction_equal() -> NDArray:
    """Run the probe "Reduction of SoftmaxCrossEntropyWithLogits" in MindSpore, written to agree
    with PyTorch, and return the loss. MindSpore: `reduction='mean'`."""
    logits, shares = Tensor(normal(8, 5)), ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    return nn.SoftmaxCrossEntropyWithLogits(reduction="mean")(logits, shares).asnumpy()


def softmax_cross_entropy_labels() -> NDArray:
    """Run the probe "Labels of SoftmaxCrossEntropyWithLogits" in MindSpore, where it raises
    TypeError; else return its result. By default it wants one-hot rows of the logits' type and
    raises an error for class numbers."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    return nn.SoftmaxCrossEntropyWithLogits(reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_labels_equal() -> NDArray:
    """Run the probe "Labels of SoftmaxCrossEntropyWithLogits" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: `sparse=True`."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_ignored() -> NDArray:
    """Run the probe "Ignored labels in SoftmaxCrossEntropyWithLogits" in MindSpore: label −100,
    which this loss cannot ignore. RuntimeError: MindSpore's own refusal; a release without one
    returns the loss."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    labels[0] = -100
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, labels).asnumpy()


def softmax_cross_entropy_ignored_equal() -> NDArray:
    """Run the probe "Ignored labels in SoftmaxCrossEntropyWithLogits" in MindSpore, written to
    agree with PyTorch, and return its result. MindSpore: `nn.CrossEntropyLoss`, which has
    `ignore_index`."""
    logits, labels = Tensor(normal(8, 5)), Tensor(class_indices(5, 8), ms.int32)
    labels[0] = -100
    return nn.CrossEntropyLoss()(logits, labels).asnumpy()


def smooth_l1_reduction() -> NDArray:
    """Run the probe "Reduction of the smooth L1 loss" in MindSpore and return the loss.
    `reduction='none'`: a loss for each element (`ops.smooth_l1_loss` too)."""
    return nn.SmoothL1Loss()(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_reduction_equal() -> NDArray:
    """Run the probe "Reduction of the smooth L1 loss" in MindSpore, written to agree with PyTorch,
    and return the loss. MindSpore: `nn.SmoothL1Loss(reduction='mean')`."""
    loss = nn.SmoothL1Loss(reduction="mean")
    return loss(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_beta() -> NDArray:
    """Run the probe "Smooth L1 loss with beta 0" in MindSpore, where it raises RuntimeError; else
    return its result. Raises an error; beta is 1 by default in both."""
    loss = nn.SmoothL1Loss(beta=0.0, reduction="mean")
    return loss(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def smooth_l1_beta_equal() -> NDArray:
    """Run the probe "Smooth L1 loss with beta 0" in MindSpore, written to agree with PyTorch, and
    return its result. MindSpore: `nn.L1Loss()`."""
    return nn.L1Loss()(Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))).asnumpy()


def mse_reduction() -> dict[str, NDArray]:
    """Run the probe "Squared, absolute and Huber loss" in MindSpore and return three losses by
    name. As in PyTorch."""
    a, b = Tensor(normal(4, 3)), Tensor(normal(4, 3, seed=1))
    losses = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(delta=0.5)}
    return {name: loss(a, b).asnumpy() for name, loss in losses.items()}


def mse_broadcast() -> NDArray:
    """Run the probe "Squared loss of shapes (N, 1) and (N)" in MindSpore and return its result.
    Gives the same number without a warning."""
    return nn.MSELoss()(Tensor(normal(4, 1)), Tensor(normal(4))).asnumpy()


def mse_float64() -> NDArray:
    """Run the probe "Squared loss in float64" in MindSpore and return its result. Losses are
    averaged in float32 and the result is cast back to float64."""
    a, b = Tensor(normal(4, 3), ms.float64), Tensor(normal(4, 3, seed=1), ms.float64)
    return nn.MSELoss()(a, b).asnumpy()


def mse_float64_equal() -> NDArray:
    """Run the probe "Squared loss in float64" in MindSpore, written to agree with PyTorch, and
    return its result. MindSpore: `ops.square(a - b).mean()`."""
    a, b = Tensor(normal(4, 3), ms.float64), Tensor(normal(4, 3, seed=1), ms.float64)
    return ops.square(a - b).mean().asnumpy()


def nll() -> NDArray:
    """Run the probe "Negative log-likelihood" in MindSpore and return its result. As in PyTorch,
    and it takes int64 labels."""
    logs, labels = ops.log_softmax(Tensor(normal(8, 5)), -1), Tensor(class_indices(5, 8))
    return nn.NLLLoss(weight=Tensor(np.abs(normal(5))))(logs, labels).asnumpy()


def bce_saturated() -> NDArray:
    """Run the probe "Binary cross-entropy of saturated probabilities" in MindSpore and return its
    result. On a CPU the bound is log 1e-12: the same costs 27.6."""
    logits, labels = 200 * Tensor(normal(4)), ops.ones(4)
    return nn.BCELoss()(ops.sigmoid(logits), labels).asnumpy()


def bce_saturated_equal() -> NDArray:
    """Run the probe "Binary cross-entropy of saturated probabilities" in MindSpore, written to
    agree with PyTorch, and return its result. Both: `nn.BCEWithLogitsLoss` of the logits."""
    logits, labels = 200 * Tensor(normal(4)), ops.ones(4)
    return nn.BCEWithLogitsLoss()(logits, labels).asnumpy()


def bce_with_logits() -> NDArray:
    """Run the probe "First argument of BCEWithLogitsLoss" in MindSpore, where it raises TypeError;
    else return its result. By position it is `reduction`, so that a tensor raises an error."""
    weight = Tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight)(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def bce_with_logits_equal() -> NDArray:
    """Run the probe "First argument of BCEWithLogitsLoss" in MindSpore, written to agree with
    PyTorch, and return its result. Pass `weight=` and `pos_weight=` by name."""
    weight = Tensor(np.abs(normal(3)))
    return nn.BCEWithLogitsLoss(weight=weight)(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def bce_with_logits_pos_weight() -> NDArray:
    """Run the probe "Weight of the positive class" in MindSpore and return its result. As in
    PyTorch."""
    loss = nn.BCEWithLogitsLoss(pos_weight=Tensor(np.abs(normal(3))))
    return loss(Tensor(normal(4, 3)), ops.ones((4, 3))).asnumpy()


def kl_div_reduction() -> dict[str, NDArray]:
    """Run the probe "Reductions of the KL divergence" in MindSpore and return the loss by
    reduction. As in PyTorch, without a warning."""
    logs = ops.log_softmax(Tensor(normal(8, 5)), -1)
    shares = ops.softmax(Tensor(normal(8, 5, seed=1)), -1)
    kinds = ("mean", "batchmean", "sum")
    return {kind: nn.KLDivLoss(reduction=kind)(logs, shares).asnumpy() for kind in kinds}


def kl_div_log_target() -> NDArray:
    """Run the probe "KL divergence with logarithms as target" in MindSpore, where it raises
    TypeError; else return its result. `nn.KLDivLoss` has no such argument and raises an error."""
    logs, target = ops.log_softmax(Tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean", log_target=True)(logs, target).asnumpy()


def kl_div_log_target_equal() -> NDArray:
    """Run the probe "KL divergence with logarithms as target" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: pass `ops.exp(target)`."""
    logs, target = ops.log_softmax(Tensor(normal(2, 8, 5)), -1)
    return nn.KLDivLoss(reduction="batchmean")(logs, ops.exp(target)).asnumpy()


def cosine_embedding_zero() -> NDArray:
    """Run the probe "Cosine embedding loss of a zero vector" in MindSpore and return its result.
    NaN."""
    a, b, same = ops.zeros((4, 3)), Tensor(normal(4, 3)), ops.ones(4, ms.int32)
    return nn.CosineEmbeddingLoss()(a, b, same).asnumpy()


def cosine_embedding_zero_equal() -> NDArray:
    """Run the probe "Cosine embedding loss of a zero vector" in MindSpore, written to agree with
    PyTorch, and return its result. MindSpore: write it with `ops.cosine_similarity`."""
    a, b, same = ops.zeros((4, 3)), Tensor(normal(4, 3)), ops.ones(4, ms.int32)
    cosine = ops.cosine_similarity(a, b)
    return ops.where(same == 1, 1 - cosine, ops.relu(cosine)).mean().asnumpy()


def triplet_margin() -> NDArray:
    """Run the probe "Triplet margin loss" in MindSpore, where it raises TypeError; else return its
    result. Its first argument is `p`, so that 0.3 raises an error, and on a CPU there is no kernel
    for it anyway."""
    anchor, near, far = Tensor(normal(3, 4, 5))
    return nn.TripletMarginLoss(0.3)(anchor, near, far).asnumpy()


def triplet_margin_equal() -> NDArray:
    """Run the probe "Triplet margin loss" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: write it with `ops.norm` and `ops.relu`."""
    anchor, near, far = Tensor(normal(3, 4, 5))
    gap = ops.norm(anchor - near + 1e-6, dim=-1) - ops.norm(anchor - far + 1e-6, dim=-1)
    return ops.relu(gap + 0.3).mean().asnumpy()


def soft_margin() -> NDArray:
    """Run the probe "Soft margin loss on a CPU" in MindSpore, where it raises RuntimeError; else
    return its result. Raises an error: no CPU kernel."""
    x, labels = Tensor(normal(4, 3)), ops.sign(Tensor(normal(4, 3, seed=1)))
    return nn.SoftMarginLoss()(x, labels).asnumpy()


def soft_margin_equal() -> NDArray:
    """Run the probe "Soft margin loss on a CPU" in MindSpore, written to agree with PyTorch, and
    return its result. MindSpore: `ops.softplus(-labels * x).mean()`."""
    x, labels = Tensor(normal(4, 3)), ops.sign(Tensor(normal(4, 3, seed=1)))
    return ops.softplus(-labels * x).mean().asnumpy()


def gaussian_nll_variance() -> NDArray:
    """Run the probe "Gaussian likelihood with a negative variance" in MindSpore and return its
    result. Takes the variance for 1e-6 and gives a huge loss without a word."""
    mean, target, variance = Tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, variance).asnumpy()


def gaussian_nll_variance_equal() -> NDArray:
    """Run the probe "Gaussian likelihood with a negative variance" in MindSpore, written to agree
    with PyTorch, and return its result. Make the variance positive: softplus or exp of what the
    network gives."""
    mean, target, variance = Tensor(normal(3, 4, 5))
    return nn.GaussianNLLLoss()(mean, target, ops.softplus(variance)).asnumpy()


def ctc() -> dict[str, NDArray]:
    """Run the probe "CTC loss" in MindSpore and return the loss by reduction. As in PyTorch, and
    int64 labels and lengths are taken too."""
    logs = ops.log_softmax(Tensor(normal(10, 3, 6)), -1)
    targets = Tensor(class_indices(5, 3, 4) + 1)
    lengths = Tensor([10, 9, 8]), Tensor([4, 3, 2])
    return {
        kind: nn.CTCLoss(reduction=kind)(logs, targets, *lengths).asnumpy()
        for kind in ("mean", "sum")
    }
