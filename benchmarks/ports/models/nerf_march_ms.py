"""Radiance field marched sample by sample, with fused heads and split input layers."""

from mindspore import nn, ops


def fourier(x, n):
    angles = ops.stack([x * float(1 << i) for i in range(n)], axis=1)
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=2)
    return ops.hstack((x, waves.flatten(start_dim=1)))


class Trunk(nn.Cell):
    """Three layers, then one more on the sum of the hidden and the encoded point's projections."""

    def __init__(self, n_in, n):
        super().__init__()
        self.first = nn.SequentialCell(nn.Dense(n_in, n), nn.ReLU(), nn.Dense(n, n), nn.ReLU(), nn.Dense(n, n), nn.ReLU())
        self.skip_point = nn.Dense(n_in, n, has_bias=False)
        self.skip_hidden = nn.Dense(n, n)

    def construct(self, e):
        return ops.relu(self.skip_hidden(self.first(e)) + self.skip_point(e))


class ColourHead(nn.Cell):
    """The part that depends on the ray alone is computed once per ray."""

    def __init__(self, n):
        super().__init__()
        self.feature = nn.Dense(n, n // 2, has_bias=False)
        self.view = nn.Dense(15, n // 2)
        self.code = nn.Dense(4, n // 2, has_bias=False)
        self.out = nn.Dense(n // 2, 3, activation="sigmoid")

    def prepare(self, view, code):
        return self.view(view) + self.code(code)

    def construct(self, feature, ray):
        return self.out(ops.relu(self.feature(feature) + ray))


class Net(nn.Cell):
    """Outputs colour, depth and opacity of each ray, and the densities of its samples."""

    def __init__(self, near=0.5, far=4.0, samples=8, width=16):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.trunk = Trunk(39, width)
        self.heads = nn.Dense(width, 1 + width)
        self.colour = ColourHead(width)
        borders = [near * far / (far + (near - far) * i / samples) for i in range(samples + 1)]
        self.intervals = list(zip(borders[:-1], borders[1:]))

    def construct(self, o, d, image):
        norm = (d**2).sum(-1) ** 0.5
        ray = self.colour.prepare(fourier(d / norm.unsqueeze(1), 2), self.embed(image))
        left = ops.ones_like(norm)
        rgb = ops.zeros_like(o)
        depth = ops.zeros_like(norm)
        sigmas = []
        for start, stop in self.intervals:
            middle = (start + stop) / 2
            p = o + middle * d
            both = self.heads(self.trunk(fourier(p, 6)))
            sigma = ops.log(1 + ops.exp(both[:, 0] - 1))
            outside = (p.abs() > 2.0).any(axis=1)
            sigma = sigma.masked_fill(outside, 0.0)
            passed = left * ops.exp(-sigma * (stop - start) * norm)
            weight = left - passed
            rgb = rgb + weight.unsqueeze(1) * self.colour(both[:, 1:], ray)
            depth = depth + weight * middle
            left = passed
            sigmas.append(sigma)
        return rgb + left.unsqueeze(1), depth, 1 - left, ops.stack(sigmas, axis=1)


def loss(outputs, targets):
    """Colour error and density prior."""
    rgb, _, _, sigma = outputs
    error = nn.MSELoss()(rgb, targets)
    prior = ops.log(1 + 2 * sigma * sigma).mean()
    return error + prior * 0.1
