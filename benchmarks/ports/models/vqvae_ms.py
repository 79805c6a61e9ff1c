"""A vector-quantised autoencoder; the codebook follows moving averages."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


def buffer(value, name):
    """A parameter that is not trained."""
    return Parameter(value, name=name, requires_grad=False)


class VectorQuantizer(nn.Cell):
    """Nearest codes, straight-through gradient."""

    def __init__(self, codes, d, decay=0.9, eps=1e-5):
        super().__init__()
        self.codes, self.decay, self.eps = codes, decay, eps
        init = ops.randn(codes, d)
        self.codebook = buffer(init, "codebook")
        self.cluster_size = buffer(ops.ones(codes, ms.float32), "cluster_size")
        self.embed_avg = buffer(init.copy(), "embed_avg")
        self.on, self.off = Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)

    def construct(self, z):
        distance = ops.square(z[:, None, :] - self.codebook[None, :, :]).sum(-1)
        index = ops.argmin(distance, axis=1).astype(ms.int32)
        hot = ops.one_hot(index, self.codes, self.on, self.off)
        quantized = ops.stop_gradient(ops.matmul(hot, self.codebook))
        if self.training:
            self.update(ops.stop_gradient(z), hot)
        commitment = ops.square(z - quantized).mean()
        quantized = z + ops.stop_gradient(quantized - z)
        return quantized, commitment

    def update(self, z, hot):
        counts = hot.sum(axis=0)
        sums = ops.matmul(hot.T, z)
        size = self.decay * self.cluster_size + (1 - self.decay) * counts
        avg = self.decay * self.embed_avg + (1 - self.decay) * sums
        n = size.sum()
        smoothed = (size + self.eps) / (n + self.codes * self.eps) * n
        ops.assign(self.codebook, avg / smoothed.expand_dims(1))
        ops.assign(self.cluster_size, size)
        ops.assign(self.embed_avg, avg)


class Net(nn.Cell):
    """Outputs the reconstruction and the commitment."""

    def __init__(self, pixels=12, d=4, codes=6):
        super().__init__()
        self.encoder = nn.SequentialCell(nn.Dense(pixels, 16), nn.ReLU(), nn.Dense(16, d))
        self.quantizer = VectorQuantizer(codes, d)
        self.decoder = nn.SequentialCell(nn.Dense(d, 16), nn.ReLU(), nn.Dense(16, pixels))

    def construct(self, x):
        z = self.encoder(x)
        q, commitment = self.quantizer(z)
        return self.decoder(q), commitment


def loss(outputs, targets):
    """Reconstruction and a quarter of the commitment."""
    reconstruction, commitment = outputs
    return ops.mse_loss(reconstruction, targets) + 0.25 * commitment
