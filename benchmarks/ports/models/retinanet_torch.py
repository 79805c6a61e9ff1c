"""RetinaNet on a feature pyramid with four levels and two anchors per place."""

import math

import torch
from torch import nn
from torch.nn import functional as F

STRIDES = [4, 8, 16, 32]
RATIOS = [1.0, 2.0]
IMAGE = 32


def make_anchors():
    """Corners of all anchors, level by level, row by row, then the ratios."""
    boxes = []
    for stride in STRIDES:
        center = torch.arange(stride / 2, IMAGE, stride)
        y, x = torch.meshgrid(center, center, indexing="ij")
        for_ratios = []
        for ratio in RATIOS:
            h = 2 * stride * math.sqrt(ratio)
            w = 2 * stride / math.sqrt(ratio)
            for_ratios.append(torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1))
        boxes.append(torch.stack(for_ratios, 2).reshape(-1, 4))
    return torch.cat(boxes)


class Pyramid(nn.Module):
    """Feature pyramid with a level more from the backbone's last map."""

    def __init__(self, widths, d):
        super().__init__()
        self.lateral = nn.ModuleList([nn.Conv2d(w, d, 1) for w in widths])
        self.smooth = nn.ModuleList([nn.Conv2d(d, d, 3, padding=1) for _ in widths])
        self.extra = nn.Conv2d(widths[-1], d, 3, stride=2, padding=1)

    def forward(self, maps):
        merged = self.lateral[-1](maps[-1])
        levels = [self.smooth[-1](merged)]
        for i in range(len(maps) - 2, -1, -1):
            side = self.lateral[i](maps[i])
            merged = side + F.interpolate(merged, size=side.shape[-2:], mode="nearest")
            levels.insert(0, self.smooth[i](merged))
        levels.append(self.extra(maps[-1]))
        return levels


def tower(d):
    return nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.GroupNorm(4, d), nn.ReLU())


class Head(nn.Module):
    """The same head on all levels."""

    def __init__(self, d, anchors, classes):
        super().__init__()
        self.anchors, self.classes = anchors, classes
        self.class_tower = tower(d)
        self.box_tower = tower(d)
        self.score = nn.Conv2d(d, anchors * classes, 3, padding=1)
        self.delta = nn.Conv2d(d, anchors * 4, 3, padding=1)
        nn.init.constant_(self.score.bias, -math.log((1 - 0.1) / 0.1))

    def arrange(self, x, size):
        b, _, h, w = x.shape
        x = x.view(b, self.anchors, size, h, w).permute(0, 3, 4, 1, 2)
        return x.reshape(b, -1, size)

    def forward(self, levels):
        scores, deltas = [], []
        for x in levels:
            scores.append(self.arrange(self.score(self.class_tower(x)), self.classes))
            deltas.append(self.arrange(self.delta(self.box_tower(x)), 4))
        return torch.cat(scores, 1), torch.cat(deltas, 1)


class Net(nn.Module):
    """Scores and box deltas of all anchors."""

    def __init__(self, classes=3):
        super().__init__()
        widths = [8, 12, 12]
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.stages = nn.ModuleList(
            [nn.Conv2d(cin, cout, 3, stride=2, padding=1) for cin, cout in zip([8, 8, 12], widths)]
        )
        self.pyramid = Pyramid(widths, 12)
        self.head = Head(12, len(RATIOS), classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        maps = []
        for stage in self.stages:
            x = F.relu(stage(x))
            maps.append(x)
        return self.head(self.pyramid(maps))


def overlap(a, b):
    """Intersection over union of all pairs."""
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    return inner / (area_a[:, None] + area_b[None] - inner)


def encode(anchors, boxes):
    size = anchors[:, 2:] - anchors[:, :2]
    center = (anchors[:, 2:] + anchors[:, :2]) / 2
    goal_size = boxes[:, 2:] - boxes[:, :2]
    goal_center = (boxes[:, 2:] + boxes[:, :2]) / 2
    return torch.cat([(goal_center - center) / size, torch.log(goal_size / size)], -1)


def focal(logits, goal, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, goal, reduction="none")
    p_t = p * goal + (1 - p) * (1 - goal)
    alpha_t = alpha * goal + (1 - alpha) * (1 - goal)
    return alpha_t * (1 - p_t) ** gamma * ce


def loss(outputs, targets):
    """Focal loss and smooth L1; targets are corners and the class of each object."""
    scores, deltas = outputs
    anchors = make_anchors()
    total = 0
    for s, d, objects in zip(scores, deltas, targets.float()):
        best, index = overlap(anchors, objects[:, :4]).max(1)
        positive, negative = best >= 0.5, best < 0.4
        count = positive.sum().clamp(min=1)
        matched = objects[index]
        goal = F.one_hot(matched[:, 4].long(), s.shape[-1]).float() * positive[:, None]
        used = positive | negative
        class_loss = focal(s[used], goal[used]).sum() / count
        box_goal = encode(anchors, matched[:, :4])
        box_loss = F.smooth_l1_loss(d[positive], box_goal[positive], beta=1 / 9, reduction="sum")
        total = total + class_loss + box_loss / count
    return total / len(scores)
