"""Super-resolution by two: residual blocks, pixel shuffle, and the enlarged image added."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions without norm, their result made smaller."""

    def __init__(self, c, scale=0.3):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, padding_mode="reflect")
        self.act = nn.PReLU(c, init=0.2)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, padding_mode="reflect")
        self.scale = scale

    def forward(self, x):
        return x + self.scale * self.conv2(self.act(self.conv1(x)))


class Net(nn.Module):
    """The enlarged image, in the colours' own range."""

    def __init__(self, c=12, blocks=2):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.40]).view(1, 3, 1, 1), False)
        self.register_buffer("std", torch.tensor([0.27, 0.26, 0.29]).view(1, 3, 1, 1), False)
        self.head = nn.Conv2d(3, c, 3, padding=1, padding_mode="reflect")
        self.blocks = nn.Sequential(*[Block(c) for _ in range(blocks)])
        self.fuse = nn.Conv2d(c, c, 1)
        self.up = nn.Conv2d(c, 4 * c, 3, padding=1, padding_mode="reflect")
        self.act = nn.PReLU(c, init=0.2)
        self.tail = nn.Conv2d(c, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, x):
        x = (x - self.mean) / self.std
        shallow = self.head(x)
        deep = self.blocks(shallow)
        h = shallow + self.fuse(deep)
        h = self.act(F.pixel_shuffle(self.up(h), 2))
        large = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return (self.tail(h) + large) * self.std + self.mean


def charbonnier(x, eps=0.05):
    return torch.sqrt(x * x + eps * eps).mean()


def loss(outputs, targets):
    """Charbonnier loss of the pixels and of their differences to the right and below."""
    d = outputs - targets
    edges = charbonnier(torch.diff(d, dim=3)) + charbonnier(torch.diff(d, dim=2))
    return charbonnier(d) + 0.2 * edges


class Adam(torch.optim.Optimizer):
    """Adam with a cosine schedule and clipping by the norm of all gradients."""

    def __init__(self, groups, total=6, floor=0.05, betas=(0.9, 0.99), eps=1e-6, clip=0.1):
        super().__init__(groups, {"betas": betas, "eps": eps})
        self.total, self.floor, self.clip = total, floor, clip
        self.t = 0

    @torch.no_grad()
    def step(self):
        every = [p for group in self.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(every, self.clip)
        share = 0.5 * (1 + math.cos(math.pi * self.t / self.total))
        factor = self.floor + (1 - self.floor) * share
        self.t += 1
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                m = state["m"] / (1 - b1**self.t)
                v = state["v"] / (1 - b2**self.t)
                p.sub_(group["lr"] * factor * m / (v.sqrt() + group["eps"]))


def optimizer(parameters):
    """The last convolution learns slowly."""
    parameters = list(parameters)
    groups = [
        {"params": parameters[:-2], "lr": 0.01},
        {"params": parameters[-2:], "lr": 0.001},
    ]
    return Adam(groups)
