"""The vector-quantised autoencoder in one cell, codes looked up by their index."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Net(nn.Cell):
    """Outputs the reconstruction and the commitment."""

    def __init__(self, pixels=12, d=4, codes=6):
        super().__init__()
        self.down1, self.down2 = nn.Dense(pixels, 16, activation="relu"), nn.Dense(16, d)
        self.up1, self.up2 = nn.Dense(d, 16, activation="relu"), nn.Dense(16, pixels)
        zeros = np.zeros((codes, d), np.float32)
        self.codebook = Parameter(Tensor(zeros), name="codebook", requires_grad=False)
        self.cluster_size = Parameter(
            Tensor(np.ones(codes, np.float32)), name="cluster_size", requires_grad=False
        )
        self.embed_avg = Parameter(Tensor(zeros), name="embed_avg", requires_grad=False)

    def construct(self, x):
        z = self.down2(self.down1(x))
        book = self.codebook
        far = (z * z).sum(1, keepdims=True) - 2 * mint.matmul(z, book.T) + (book * book).sum(1)
        index = ops.argmin(far, 1)
        q = ops.stop_gradient(ops.gather(book, index, 0))
        if self.training:
            self.follow(ops.stop_gradient(z), index.astype(ms.int32))
        d = z - q
        return self.up2(self.up1(z - ops.stop_gradient(d))), mint.mean(d * d)

    def follow(self, z, index):
        """Moving averages as steps towards the batch's sums."""
        codes = self.codebook.shape[0]
        counts = ops.unsorted_segment_sum(ops.ones_like(z[:, 0]), index, codes)
        sums = ops.unsorted_segment_sum(z, index, codes)
        ops.assign(self.cluster_size, self.cluster_size + 0.1 * (counts - self.cluster_size))
        ops.assign(self.embed_avg, self.embed_avg + 0.1 * (sums - self.embed_avg))
        n = self.cluster_size.sum()
        size = (self.cluster_size + 1e-5) * (n / (n + codes * 1e-5))
        ops.assign(self.codebook, self.embed_avg / size[:, None])


def loss(outputs, targets):
    """Reconstruction and a quarter of the commitment."""
    return mint.mean(mint.square(outputs[0] - targets)) + outputs[1] / 4
