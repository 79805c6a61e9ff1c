"""VICReg on a small encoder with a weight-standardised layer, an online classifier, and LARS."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class StandardConv(nn.Conv2d):
    """A convolution whose filters have mean zero and deviation one, with a gain."""

    def __init__(self, inputs, outputs, size, **options):
        super().__init__(inputs, outputs, size, bias=False, **options)
        self.gain = nn.Parameter(torch.ones(outputs, 1, 1, 1))

    def forward(self, x):
        fan = self.weight[0].numel()
        var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), unbiased=False, keepdim=True)
        weight = (self.weight - mean) / torch.sqrt(var * fan + 1e-4)
        return F.conv2d(x, weight * self.gain, None, self.stride, self.padding)


class Encoder(nn.Module):
    """Two convolutions with batch norms and average pooling between."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(8, momentum=0.01)
        self.conv2 = StandardConv(8, 12, 3, padding=1)

    def forward(self, x):
        x = self.pool(F.silu(self.bn1(self.conv1(x))))
        x = F.silu(self.conv2(self.bn2(x)))
        return F.adaptive_avg_pool2d(x, 2).flatten(1)


class Net(nn.Module):
    """Outputs both views' projections and the first one's classes; follows the features' spread (collapse)."""

    def __init__(self, classes=4):
        super().__init__()
        self.encoder = Encoder()
        self.projector = nn.Sequential(
            nn.Linear(48, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 12, bias=False)
        )
        self.probe = nn.Linear(48, classes)
        self.register_buffer("spread", torch.tensor(0.14))

    def forward(self, first, second):
        one = self.encoder(first)
        two = self.encoder(second)
        if self.training:
            with torch.no_grad():
                level = F.normalize(one, dim=1).std(dim=0).mean()
                self.spread.mul_(0.9).add_(0.1 * level)
        return self.projector(one), self.projector(two), self.probe(one.detach())


def off_diagonal(matrix):
    """All entries beside the diagonal."""
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def loss(outputs, targets):
    """Invariance, variance and covariance, and the classifier's cross-entropy."""
    one, two, classes = outputs
    total = 5 * F.mse_loss(one, two)
    for z in (one, two):
        n, d = z.shape
        std = torch.sqrt(z.var(dim=0) + 1e-4)
        total = total + 5 * F.relu(1 - std).mean() / 2
        centred = z - z.mean(dim=0)
        covariance = centred.T @ centred / (n - 1)
        total = total + 2 * off_diagonal(covariance).pow(2).sum() / d
    return total + F.cross_entropy(classes, targets)


class LARS(torch.optim.Optimizer):
    """Momentum with a rate for each weight by its norm; biases and norms go without it. Cosine schedule."""

    def __init__(self, params, lr=0.3, momentum=0.9, weight_decay=0.01, eta=0.02, total=8):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "adapt": True})
        self.momentum, self.eta, self.total = momentum, eta, total
        self.done = 0

    @torch.no_grad()
    def step(self, closure=None):
        factor = 0.5 * (1 + math.cos(math.pi * self.done / self.total))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                update = p.grad
                if group["adapt"]:
                    update = update + group["weight_decay"] * p
                    weight, length = p.norm(), update.norm()
                    if weight > 0 and length > 0:
                        update = update * (self.eta * weight / length)
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].mul_(self.momentum).add_(update)
                p.sub_(group["lr"] * factor * state["momentum"])
        self.done += 1


def optimizer(parameters):
    """Weights adapt; biases, gains and norms have a smaller rate."""
    weights, others = [], []
    for p in parameters:
        (weights if p.squeeze().ndim > 1 else others).append(p)
    return LARS([{"params": weights}, {"params": others, "adapt": False, "lr": 0.05}])
