"""A masked autoencoder: the order of the patches is given, the first ones are kept."""

import torch
from torch import nn
from torch.nn import functional as F

PATCH = 4
SIDE = 4
KEEP = 6


def patchify(images):
    """(b, c, h, w) to (b, patches, pixels and colours)."""
    b, c, _, _ = images.shape
    x = images.reshape(b, c, SIDE, PATCH, SIDE, PATCH)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, SIDE * SIDE, PATCH * PATCH * c)


def sincos(d):
    """Fixed positions: half the features for the row, half for the column; zeros for the class."""
    rates = 10000 ** (-torch.arange(d // 4, dtype=torch.float64) / (d // 4))
    place = torch.arange(SIDE, dtype=torch.float64)
    angles = place[:, None] * rates
    line = torch.cat([angles.sin(), angles.cos()], 1)
    rows = line[:, None, :].expand(SIDE, SIDE, -1)
    columns = line[None, :, :].expand(SIDE, SIDE, -1)
    grid = torch.cat([rows, columns], -1).flatten(0, 1)
    return torch.cat([torch.zeros(1, d), grid.float()])


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    """Norm first."""

    def __init__(self, d, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(d, eps=1e-6)
        self.attention = Attention(d, heads)
        self.norm2 = nn.LayerNorm(d, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """The predicted patches, and the mask that is one where a patch was removed."""

    def __init__(self, d=24, small=16, heads=2):
        super().__init__()
        pixels = PATCH * PATCH * 3
        self.embed = nn.Linear(pixels, d)
        self.cls_token = nn.Parameter(torch.randn(1, 1, d) * 0.1)
        self.mask_token = nn.Parameter(torch.randn(1, 1, small) * 0.1)
        self.register_buffer("positions", sincos(d), persistent=False)
        self.register_buffer("decoder_positions", sincos(small), persistent=False)
        self.encoder = nn.ModuleList([Block(d, heads) for _ in range(2)])
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.reduce = nn.Linear(d, small)
        self.decoder = Block(small, heads)
        self.decoder_norm = nn.LayerNorm(small, eps=1e-6)
        self.predict = nn.Linear(small, pixels)

    def encode(self, images, keep):
        x = self.embed(patchify(images)) + self.positions[1:]
        x = torch.gather(x, 1, keep[..., None].expand(-1, -1, x.shape[-1]))
        cls = (self.cls_token + self.positions[:1]).expand(len(x), -1, -1)
        x = torch.cat([cls, x], 1)
        for block in self.encoder:
            x = block(x)
        return self.norm(x)

    def decode(self, x, restore):
        x = self.reduce(x)
        b, n = restore.shape
        hidden = self.mask_token.expand(b, n - KEEP, -1)
        patches = torch.cat([x[:, 1:], hidden], 1)
        patches = torch.gather(patches, 1, restore[..., None].expand(-1, -1, x.shape[-1]))
        x = torch.cat([x[:, :1], patches], 1) + self.decoder_positions
        x = self.decoder_norm(self.decoder(x))
        return self.predict(x)[:, 1:]

    def forward(self, images, order):
        restore = torch.argsort(order, 1)
        prediction = self.decode(self.encode(images, order[:, :KEEP]), restore)
        mask = torch.ones(order.shape)
        mask[:, :KEEP] = 0
        return prediction, torch.gather(mask, 1, restore)


def loss(outputs, targets):
    """Squared error of the normed pixels over the removed patches."""
    prediction, mask = outputs
    goal = patchify(targets)
    mean = goal.mean(-1, keepdim=True)
    var = goal.var(-1, keepdim=True)
    goal = (goal - mean) / (var + 1e-6) ** 0.5
    error = ((prediction - goal) ** 2).mean(-1)
    return (error * mask).sum() / mask.sum()


class AdamW(torch.optim.Optimizer):
    """AdamW with a linear warm-up."""

    def __init__(self, groups, lr, betas, eps=1e-6, warmup=4):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.warmup = warmup
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        t = self.count
        for group in self.param_groups:
            lr = group["lr"] * min(1.0, t / self.warmup)
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                p.mul_(1 - lr * group["weight_decay"])
                state["m"].lerp_(p.grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                m = state["m"] / (1 - b1**t)
                v = state["v"] / (1 - b2**t)
                p.sub_(lr * m / (v.sqrt() + group["eps"]))


def optimizer(parameters):
    """No decay for biases and norms."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.3},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=0.02, betas=(0.9, 0.95))
