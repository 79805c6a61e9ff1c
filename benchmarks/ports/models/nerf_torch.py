"""A small radiance field with appearance codes, rendered along rays."""

import torch
from torch import nn
from torch.nn import functional as F


def positional_encoding(x, num_freqs):
    """x, sin(x), cos(x), sin(2x), cos(2x), sin(4x), ..."""
    out = [x]
    for freq in 2.0 ** torch.arange(num_freqs):
        for fn in (torch.sin, torch.cos):
            out.append(fn(x * freq))
    return torch.cat(out, dim=-1)


class NeRF(nn.Module):
    """The field: density from the point, colour from point, view direction and appearance code."""

    def __init__(self, depth=4, width=16, input_ch=39, input_ch_views=15, ch_appearance=4, skips=(2,)):
        super().__init__()
        self.skips = skips
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, width)]
            + [nn.Linear(width + input_ch if i in skips else width, width) for i in range(depth - 1)]
        )
        self.alpha_linear = nn.Linear(width, 1)
        self.feature_linear = nn.Linear(width, width)
        self.views_linear = nn.Linear(width + input_ch_views + ch_appearance, width // 2)
        self.rgb_linear = nn.Linear(width // 2, 3)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, pts, views, code):
        h = pts
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([pts, h], -1)
        sigma = F.softplus(self.alpha_linear(h) - 1.0)
        feature = self.feature_linear(h)
        h = F.relu(self.views_linear(torch.cat([feature, views, code], -1)))
        return torch.sigmoid(self.rgb_linear(h)), sigma.squeeze(-1)


def raw2outputs(rgb, sigma, edges, z_vals, rays_d):
    """Alpha compositing on a white background."""
    dists = edges[1:] - edges[:-1]
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)
    alpha = 1.0 - torch.exp(-sigma * dists)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * trans
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    depth_map = torch.sum(weights * z_vals, -1)
    acc_map = torch.sum(weights, -1)
    rgb_map = rgb_map + (1.0 - acc_map[..., None])
    return rgb_map, depth_map, acc_map


class Net(nn.Module):
    """Outputs colour, depth and opacity of each ray, and the densities of its samples."""

    def __init__(self, images=5, samples=8, near=0.5, far=4.0, bound=2.0, multires=6, multires_views=2):
        super().__init__()
        self.samples, self.near, self.far, self.bound = samples, near, far, bound
        self.multires, self.multires_views = multires, multires_views
        self.appearance = nn.Embedding(images, 4)
        self.field = NeRF(input_ch=3 + 6 * multires, input_ch_views=3 + 6 * multires_views)

    def forward(self, rays_o, rays_d, image):
        # samples are spaced evenly in disparity, each in the middle of its interval
        t = torch.linspace(0.0, 1.0, self.samples + 1)
        edges = 1.0 / (1.0 / self.near * (1.0 - t) + 1.0 / self.far * t)
        z_vals = 0.5 * (edges[1:] + edges[:-1])
        pts = rays_o[:, None, :] + rays_d[:, None, :] * z_vals[None, :, None]
        viewdirs = rays_d / torch.norm(rays_d, dim=-1, keepdim=True)

        embedded = positional_encoding(pts, self.multires)
        views = positional_encoding(viewdirs, self.multires_views)[:, None, :].expand(-1, self.samples, -1)
        code = self.appearance(image)[:, None, :].expand(-1, self.samples, -1)
        rgb, sigma = self.field(embedded, views, code)

        inside = (pts.abs() <= self.bound).all(dim=-1)
        sigma = torch.where(inside, sigma, torch.zeros_like(sigma))
        rgb_map, depth_map, acc_map = raw2outputs(rgb, sigma, edges, z_vals, rays_d)
        return rgb_map, depth_map, acc_map, sigma


def loss(outputs, targets):
    """Squared error of the colours and a Cauchy prior that keeps the density sparse."""
    rgb_map, _, _, sigma = outputs
    sparsity = torch.log(1.0 + 2.0 * sigma**2).mean()
    return F.mse_loss(rgb_map, targets) + 0.1 * sparsity
