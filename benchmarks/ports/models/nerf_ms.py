"""A small radiance field with appearance codes, rendered along rays."""

import math

from mindspore import nn, ops
from mindspore.common.initializer import XavierUniform


def positional_encoding(x, num_freqs):
    """x, sin(x), cos(x), sin(2x), cos(2x), sin(4x), ..."""
    parts = [x]
    for k in range(num_freqs):
        scaled = x * 2.0**k
        parts.append(ops.sin(scaled))
        parts.append(ops.cos(scaled))
    return ops.concat(parts, axis=-1)


def dense(n_in, n_out):
    return nn.Dense(n_in, n_out, weight_init=XavierUniform(gain=math.sqrt(2)))


class NeRF(nn.Cell):
    """The field: density from the point, colour from point, view direction and appearance code."""

    def __init__(self, depth=4, width=16, input_ch=39, input_ch_views=15, ch_appearance=4, skips=(2,)):
        super().__init__()
        self.skips = skips
        layers = [dense(input_ch, width)]
        for i in range(depth - 1):
            layers.append(dense(width + input_ch if i in skips else width, width))
        self.pts_linears = nn.CellList(layers)
        self.alpha_linear = dense(width, 1)
        self.feature_linear = dense(width, width)
        self.views_linear = dense(width + input_ch_views + ch_appearance, width // 2)
        self.rgb_linear = dense(width // 2, 3)

    def construct(self, pts, views, code):
        h = pts
        for i, layer in enumerate(self.pts_linears):
            h = ops.relu(layer(h))
            if i in self.skips:
                h = ops.concat((pts, h), axis=-1)
        sigma = ops.softplus(self.alpha_linear(h) - 1.0)
        feature = self.feature_linear(h)
        h = ops.relu(self.views_linear(ops.concat((feature, views, code), axis=-1)))
        return ops.sigmoid(self.rgb_linear(h)), sigma.squeeze(-1)


def raw2outputs(rgb, sigma, edges, z_vals, rays_d):
    """Alpha compositing on a white background."""
    dists = edges[1:] - edges[:-1]
    dists = dists * ops.norm(rays_d.expand_dims(1), dim=-1)
    alpha = 1.0 - ops.exp(-sigma * dists)
    shifted = ops.concat((ops.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10), axis=-1)
    trans = ops.cumprod(shifted, dim=-1)[:, :-1]
    weights = alpha * trans
    rgb_map = ops.sum(weights.expand_dims(-1) * rgb, -2)
    depth_map = ops.sum(weights * z_vals, -1)
    acc_map = ops.sum(weights, -1)
    rgb_map = rgb_map + (1.0 - acc_map.expand_dims(-1))
    return rgb_map, depth_map, acc_map


class Net(nn.Cell):
    """Outputs colour, depth and opacity of each ray, and the densities of its samples."""

    def __init__(self, images=5, samples=8, near=0.5, far=4.0, bound=2.0, multires=6, multires_views=2):
        super().__init__()
        self.samples, self.near, self.far, self.bound = samples, near, far, bound
        self.multires, self.multires_views = multires, multires_views
        self.appearance = nn.Embedding(images, 4)
        self.field = NeRF(input_ch=3 + 6 * multires, input_ch_views=3 + 6 * multires_views)

    def construct(self, rays_o, rays_d, image):
        # samples are spaced evenly in disparity, each in the middle of its interval
        t = ops.linspace(0.0, 1.0, self.samples + 1)
        edges = 1.0 / (1.0 / self.near * (1.0 - t) + 1.0 / self.far * t)
        z_vals = 0.5 * (edges[1:] + edges[:-1])
        pts = rays_o.expand_dims(1) + rays_d.expand_dims(1) * z_vals.reshape(1, -1, 1)
        viewdirs = rays_d / ops.norm(rays_d, dim=-1, keepdim=True)

        embedded = positional_encoding(pts, self.multires)
        views = positional_encoding(viewdirs, self.multires_views)
        views = ops.tile(views.expand_dims(1), (1, self.samples, 1))
        code = ops.tile(self.appearance(image).expand_dims(1), (1, self.samples, 1))
        rgb, sigma = self.field(embedded, views, code)

        inside = (ops.abs(pts) <= self.bound).all(axis=-1)
        sigma = ops.where(inside, sigma, ops.zeros_like(sigma))
        rgb_map, depth_map, acc_map = raw2outputs(rgb, sigma, edges, z_vals, rays_d)
        return rgb_map, depth_map, acc_map, sigma


def loss(outputs, targets):
    """Squared error of the colours and a Cauchy prior that keeps the density sparse."""
    rgb_map, _, _, sigma = outputs
    sparsity = ops.log(1.0 + 2.0 * sigma**2).mean()
    return ops.mse_loss(rgb_map, targets) + 0.1 * sparsity
