"""Registration of two images: an affine step, then a flow integrated by scaling and squaring."""

import torch
from torch import nn
from torch.nn import functional as F


def warp(image, flow):
    """Samples where the flow points; the flow has rows and columns in pixels."""
    h, w = image.shape[2:]
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    place = torch.stack([y, x]).to(flow) + flow
    place = torch.stack(
        [2 * (place[:, 0] / (h - 1) - 0.5), 2 * (place[:, 1] / (w - 1) - 0.5)], dim=-1
    )
    return F.grid_sample(image, place[..., [1, 0]], align_corners=True)


class Net(nn.Module):
    """The moved image and the flow."""

    def __init__(self, c=8, squarings=2):
        super().__init__()
        self.squarings = squarings
        self.pose1 = nn.Conv2d(2, c, 3, stride=2, padding=1)
        self.pose2 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.pose = nn.Linear(2 * c, 6)
        self.flow1 = nn.Conv2d(2, c, 3, stride=2, padding=1)
        self.flow2 = nn.Conv2d(c, c, 3, padding=1)
        self.flow = nn.Conv2d(c, 2, 3, padding=1)
        nn.init.normal_(self.pose.weight, std=0.5)
        nn.init.normal_(self.flow.weight, std=0.5)
        self.register_buffer("identity", torch.tensor([1.0, 0, 0, 0, 1, 0]), persistent=False)

    def align(self, moving, fixed):
        h = F.leaky_relu(self.pose1(torch.cat([moving, fixed], 1)))
        h = F.leaky_relu(self.pose2(h)).mean((2, 3))
        theta = (self.identity + 0.3 * torch.tanh(self.pose(h))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(moving.shape), align_corners=False)
        return F.grid_sample(moving, grid, padding_mode="border", align_corners=False)

    def forward(self, moving, fixed):
        aligned = self.align(moving, fixed)
        h = F.leaky_relu(self.flow1(torch.cat([aligned, fixed], 1)))
        h = F.leaky_relu(self.flow2(h))
        flow = self.flow(h) / 2**self.squarings
        for _ in range(self.squarings):
            flow = flow + warp(flow, flow)
        flow = 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=True)
        return warp(aligned, flow), flow


def correlation(a, b, window=5):
    """Squared local correlation in windows."""
    mean = lambda x: F.avg_pool2d(x, window, stride=1, padding=window // 2)
    cross = mean(a * b) - mean(a) * mean(b)
    var_a = mean(a * a) - mean(a) ** 2
    var_b = mean(b * b) - mean(b) ** 2
    return cross * cross / (var_a * var_b + 1e-3)


def loss(outputs, targets):
    """Local correlation with the fixed image, and the smoothness of the flow."""
    moved, flow = outputs
    rows = torch.diff(flow, dim=2).pow(2).mean()
    columns = torch.diff(flow, dim=3).pow(2).mean()
    return 0.05 * (rows + columns) / 2 - correlation(moved, targets).mean()
