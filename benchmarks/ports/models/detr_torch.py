"""DETR: patches, one encoder layer, two decoder layers with learned queries, auxiliary losses."""

import math

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 8


class SinePositions(nn.Module):
    """Positions over the valid part of the grid, rows first, sines and cosines in turn."""

    def __init__(self, features, temperature=100.0):
        super().__init__()
        self.features = features
        self.temperature = temperature

    def forward(self, padded):
        valid = (~padded).float()
        y, x = valid.cumsum(1), valid.cumsum(2)
        y = y / (y[:, -1:, :] + 1e-6) * 2 * math.pi
        x = x / (x[:, :, -1:] + 1e-6) * 2 * math.pi
        k = torch.arange(self.features, dtype=torch.float32)
        rates = self.temperature ** (2 * torch.div(k, 2, rounding_mode="floor") / self.features)
        parts = []
        for p in (y, x):
            p = p[..., None] / rates
            p = torch.stack([p[..., 0::2].sin(), p[..., 1::2].cos()], dim=-1).flatten(3)
            parts.append(p)
        return torch.cat(parts, -1).flatten(1, 2)


class FeedForward(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class EncoderLayer(nn.Module):
    def __init__(self, d, heads, hidden):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.feed = FeedForward(d, hidden)
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)

    def forward(self, x, pos, padded):
        q = x + pos
        x = self.norm1(x + self.attention(q, q, x, key_padding_mask=padded)[0])
        return self.norm2(x + self.feed(x))


class DecoderLayer(nn.Module):
    def __init__(self, d, heads, hidden):
        super().__init__()
        self.self_attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.feed = FeedForward(d, hidden)
        self.norm1 = nn.LayerNorm(d)
        self.norm2 = nn.LayerNorm(d)
        self.norm3 = nn.LayerNorm(d)

    def forward(self, x, queries, memory, pos, padded):
        q = x + queries
        x = self.norm1(x + self.self_attention(q, q, x)[0])
        cross = self.cross_attention(x + queries, memory + pos, memory, key_padding_mask=padded)[0]
        x = self.norm2(x + cross)
        return self.norm3(x + self.feed(x))


class Net(nn.Module):
    """Class scores and boxes of all queries after each decoder layer."""

    def __init__(self, d=24, heads=3, hidden=40, queries=5):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, stride=4)
        self.positions = SinePositions(d // 2)
        self.encoder = EncoderLayer(d, heads, hidden)
        self.decoder = nn.ModuleList([DecoderLayer(d, heads, hidden) for _ in range(2)])
        self.norm = nn.LayerNorm(d)
        self.queries = nn.Embedding(queries, d)
        self.classify = nn.Linear(d, CLASSES + 1)
        self.box = nn.ModuleList([nn.Linear(d, d), nn.Linear(d, 4)])
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
            elif p.abs().sum() == 0:
                nn.init.normal_(p, std=0.1)

    def forward(self, images, widths):
        x = self.patch(images)
        b, _, h, w = x.shape
        padded = (torch.arange(w)[None, None, :] >= widths[:, None, None]).expand(b, h, w)
        pos = self.positions(padded)
        padded = padded.flatten(1)
        memory = self.encoder(x.flatten(2).transpose(1, 2), pos, padded)
        queries = self.queries.weight.expand(b, -1, -1)
        out = torch.zeros_like(queries)
        scores, boxes = [], []
        for layer in self.decoder:
            out = layer(out, queries, memory, pos, padded)
            y = self.norm(out)
            scores.append(self.classify(y))
            boxes.append(torch.sigmoid(self.box[1](F.relu(self.box[0](y)))))
        return torch.stack(scores), torch.stack(boxes)


def corners(boxes):
    cx, cy, w, h = boxes.unbind(-1)
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)


def generalized_iou(a, b):
    """Of pairs of corners."""
    inner = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(
        min=0
    )
    inner = inner.prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inner
    hull = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    hull = hull.prod(-1)
    return inner / union - (hull - union) / hull


def loss(outputs, targets):
    """Targets: class and box (center, size) in sixteenths; object i belongs to query i."""
    objects = targets.shape[1]
    goal_class = targets[..., 0]
    goal_box = targets[..., 1:].float() / 16
    weight = torch.ones(CLASSES + 1)
    weight[-1] = 0.1
    total = 0
    for scores, boxes in zip(*outputs):
        labels = torch.full(scores.shape[:2], CLASSES)
        labels[:, :objects] = goal_class
        ce = F.cross_entropy(scores.transpose(1, 2), labels, weight=weight)
        count = goal_class.numel()
        found = boxes[:, :objects]
        l1 = F.l1_loss(found, goal_box, reduction="sum") / count
        giou = (1 - generalized_iou(corners(found), corners(goal_box))).sum() / count
        total = total + ce + 5 * l1 + 2 * giou
    return total
