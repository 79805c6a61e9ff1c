"""A VAE on small images; the noise is an input."""

from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, hidden=20, latent=5):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.fc1 = nn.Dense(64, hidden)
        self.fc_mu = nn.Dense(hidden, latent)
        self.fc_logvar = nn.Dense(hidden, latent)
        self.fc2 = nn.Dense(latent, hidden)
        self.fc3 = nn.Dense(hidden, 64)

    def encode(self, x):
        h = ops.elu(self.conv(x)).reshape(x.shape[0], -1)
        h = ops.tanh(self.fc1(h))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar, noise):
        std = ops.exp(0.5 * logvar)
        return mu + noise * std

    def decode(self, z):
        h = ops.softplus(self.fc2(z))
        return self.fc3(h).view(-1, 1, 8, 8)

    def construct(self, x, noise):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar, noise)
        return self.decode(z), mu, logvar


def loss(outputs, targets):
    """Squared error summed over the pixels, plus the KL divergence; mean over the batch."""
    recon, mu, logvar = outputs
    mse = ops.square(recon - targets).sum() / targets.shape[0]
    kl = -0.5 * (1 + logvar - mu**2 - ops.exp(logvar)).sum(axis=1).mean()
    return mse + 0.5 * kl


class RMSprop(nn.Optimizer):
    """RMSprop as in PyTorch: eps outside the root, momentum on the scaled gradient."""

    def __init__(self, params, learning_rate, alpha, eps, momentum):
        super().__init__(learning_rate, params)
        self.alpha, self.eps, self.momentum = alpha, eps, momentum
        self.square_avg = self.parameters.clone(prefix="square_avg", init="zeros")
        self.buffer = self.parameters.clone(prefix="buffer", init="zeros")

    def construct(self, gradients):
        lr = self.get_lr()
        for p, g, v, b in zip(self.parameters, gradients, self.square_avg, self.buffer):
            v_new = self.alpha * v + (1 - self.alpha) * g * g
            b_new = self.momentum * b + g / (ops.sqrt(v_new) + self.eps)
            ops.assign(v, v_new)
            ops.assign(b, b_new)
            ops.assign(p, p - lr * b_new)
        return True


def optimizer(parameters):
    return RMSprop(parameters, 2e-3, alpha=0.95, eps=1e-3, momentum=0.5)
