"""The neutral losses in MindSpore: logits (B, K) with int32 class numbers (B,), or (B, T, K) with
(B, T), where every position counts as a sample."""

from __future__ import annotations

from mindspore import nn, ops


class CrossEntropy(nn.Cell):
    """Mean of −log softmax(logits)[label] in nat."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.CrossEntropyLoss()

    def construct(self, logits, labels):
        if logits.ndim > 2:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        return self.mean(logits, labels)


class MSE(nn.Cell):
    """Mean over all entries of (logits − one-hot)²."""

    def construct(self, logits, labels):
        target = ops.one_hot(labels, logits.shape[-1], 1.0, 0.0)
        return ops.mean((logits - target) * (logits - target))


LOSSES: dict[str, type[nn.Cell]] = {"cross_entropy": CrossEntropy, "mse": MSE}
