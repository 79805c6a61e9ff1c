"""A temporal convolutional network: causal dilated convolutions with weight normalisation."""

import torch
from torch import nn
from torch.nn import functional as F


class WNConv1d(nn.Module):
    """Conv1d with weight = g * v / |v|, one norm for each output channel."""

    def __init__(self, cin, cout, kernel, padding, dilation):
        super().__init__()
        conv = nn.Conv1d(cin, cout, kernel)
        self.v = nn.Parameter(conv.weight.detach().clone())
        self.g = nn.Parameter(self.v.detach().flatten(1).norm(dim=1).view(-1, 1, 1).clone())
        self.bias = nn.Parameter(conv.bias.detach().clone())
        self.padding, self.dilation = padding, dilation

    def forward(self, x):
        norm = self.v.pow(2).sum((1, 2), keepdim=True).sqrt()
        w = self.g * self.v / norm
        return F.conv1d(x, w, self.bias, padding=self.padding, dilation=self.dilation)


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super().__init__()
        self.chomp = (kernel_size - 1) * dilation
        self.conv1 = WNConv1d(n_inputs, n_outputs, kernel_size, self.chomp, dilation)
        self.conv2 = WNConv1d(n_outputs, n_outputs, kernel_size, self.chomp, dilation)
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

    def forward(self, x):
        out = F.relu(self.conv1(x)[:, :, : -self.chomp])
        out = F.relu(self.conv2(out)[:, :, : -self.chomp])
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        channels = [8, 8, 10]
        blocks = []
        for i, c in enumerate(channels):
            blocks.append(TemporalBlock(4 if i == 0 else channels[i - 1], c, 3, 2**i))
        self.tcn = nn.Sequential(*blocks)
        self.linear = nn.Linear(10, 3)

    def forward(self, x):
        y = self.tcn(x.transpose(1, 2))
        return self.linear(y[:, :, -1])


class WarmupSGD(torch.optim.SGD):
    """SGD whose rate rises for three steps and then falls as a cosine."""

    def __init__(self, params, lr, warmup, total):
        super().__init__(params, lr=lr)
        self.base, self.warmup, self.total, self.count = lr, warmup, total, 0

    def step(self, closure=None):
        if self.count < self.warmup:
            factor = (self.count + 1) / self.warmup
        else:
            done = (self.count - self.warmup) / (self.total - self.warmup)
            factor = 0.5 * (1 + float(torch.cos(torch.tensor(done * torch.pi))))
        for group in self.param_groups:
            group["lr"] = self.base * factor
        self.count += 1
        return super().step(closure)


def optimizer(parameters):
    return WarmupSGD(parameters, lr=0.5, warmup=3, total=12)
