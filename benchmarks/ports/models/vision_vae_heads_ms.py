"""The VAE with an encoder cell and a decoder cell; the loss as a cell; the library's RMSprop."""

from mindspore import experimental, nn, ops


class Encoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, "pad", (1, 1, 1, 1), has_bias=True)
        self.body = nn.SequentialCell(nn.ELU(), nn.Flatten(), nn.Dense(64, 20), nn.Tanh())
        self.mean = nn.Dense(20, 5)
        self.log_var = nn.Dense(20, 5)

    def construct(self, x):
        h = self.body(self.conv(x))
        return self.mean(h), self.log_var(h)


class Decoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.lift = nn.Dense(5, 20)
        self.out = nn.Dense(20, 64)

    def construct(self, z):
        h = ops.log1p(ops.exp(self.lift(z)))
        return self.out(h).reshape(z.shape[0], 1, 8, 8)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def construct(self, x, eps):
        mean, log_var = self.encoder(x)
        z = mean + ops.sqrt(ops.exp(log_var)) * eps
        return (self.decoder(z), mean, log_var)


def loss(outputs, targets):
    reconstruction, mean, log_var = outputs
    n = targets.shape[0]
    error = ops.mse_loss(reconstruction, targets, reduction="sum")
    divergence = 0.5 * ops.reduce_sum(mean * mean + ops.exp(log_var) - 1 - log_var)
    return (error + 0.5 * divergence) / n


def optimizer(parameters):
    return experimental.optim.RMSprop(parameters, 2e-3, alpha=0.95, eps=1e-3, momentum=0.5)
