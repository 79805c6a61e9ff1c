import torch
from torch import nn


class BatchNorm2d(nn.Module):
    def __init__(self, size, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean = x.mean((0, 2, 3))
            var = (x - mean[:, None, None]).square().mean((0, 2, 3))
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var, self.momentum)
                self.num_batches_tracked += 1
        y = (x - mean[:, None, None]) * (var + self.eps).rsqrt()[:, None, None]
        return y * self.weight[:, None, None] + self.bias[:, None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 6, 3, bias=False), BatchNorm2d(6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))
