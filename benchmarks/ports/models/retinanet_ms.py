"""RetinaNet on a feature pyramid with four levels and two anchors per place."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

STRIDES = [4, 8, 16, 32]
RATIOS = [1.0, 2.0]
IMAGE = 32


def make_anchors():
    """Corners of all anchors, level by level, row by row, then the ratios."""
    boxes = []
    for stride in STRIDES:
        center = np.arange(stride / 2, IMAGE, stride)
        y, x = np.meshgrid(center, center, indexing="ij")
        for_ratios = []
        for ratio in RATIOS:
            h = 2 * stride * math.sqrt(ratio)
            w = 2 * stride / math.sqrt(ratio)
            for_ratios.append(np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1))
        boxes.append(np.stack(for_ratios, 2).reshape(-1, 4))
    return Tensor(np.concatenate(boxes), ms.float32)


def conv3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride=stride, pad_mode="pad", padding=1, has_bias=True)


class Pyramid(nn.Cell):
    """Feature pyramid with a level more from the backbone's last map."""

    def __init__(self, widths, d):
        super().__init__()
        self.lateral = nn.CellList([nn.Conv2d(w, d, 1, has_bias=True) for w in widths])
        self.smooth = nn.CellList([conv3(d, d) for _ in widths])
        self.extra = conv3(widths[-1], d, stride=2)

    def construct(self, maps):
        merged = self.lateral[-1](maps[-1])
        levels = [self.smooth[-1](merged)]
        for i in range(len(maps) - 2, -1, -1):
            side = self.lateral[i](maps[i])
            upper = ops.interpolate(merged, size=side.shape[-2:], mode="nearest")
            merged = side + upper
            levels.insert(0, self.smooth[i](merged))
        levels.append(self.extra(maps[-1]))
        return levels


def tower(d):
    return nn.SequentialCell(conv3(d, d), nn.GroupNorm(4, d), nn.ReLU())


class Head(nn.Cell):
    """The same head on all levels."""

    def __init__(self, d, anchors, classes):
        super().__init__()
        self.anchors, self.classes = anchors, classes
        self.class_tower = tower(d)
        self.box_tower = tower(d)
        self.score = conv3(d, anchors * classes)
        self.delta = conv3(d, anchors * 4)
        self.score.bias.set_data(ops.full_like(self.score.bias, -math.log(0.9 / 0.1)))

    def arrange_scores(self, x):
        b, _, h, w = x.shape
        x = x.reshape(b, self.anchors, self.classes, h, w)
        return x.transpose(0, 3, 4, 1, 2).reshape(b, -1, self.classes)

    def arrange_deltas(self, x):
        return x.transpose(0, 2, 3, 1).reshape(x.shape[0], -1, 4)

    def construct(self, levels):
        scores, deltas = [], []
        for x in levels:
            scores.append(self.arrange_scores(self.score(self.class_tower(x))))
            deltas.append(self.arrange_deltas(self.delta(self.box_tower(x))))
        return ops.cat(scores, 1), ops.cat(deltas, 1)


class Net(nn.Cell):
    """Scores and box deltas of all anchors."""

    def __init__(self, classes=3):
        super().__init__()
        widths = [8, 12, 12]
        self.stem = conv3(3, 8, stride=2)
        self.stages = nn.CellList(
            [conv3(cin, cout, stride=2) for cin, cout in zip([8, 8, 12], widths)]
        )
        self.pyramid = Pyramid(widths, 12)
        self.head = Head(12, len(RATIOS), classes)

    def construct(self, x):
        x = ops.relu(self.stem(x))
        maps = []
        for stage in self.stages:
            x = ops.relu(stage(x))
            maps.append(x)
        return self.head(self.pyramid(maps))


def overlap(a, b):
    """Intersection over union of all pairs."""
    low = ops.maximum(a[:, None, :2], b[None, :, :2])
    high = ops.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = ops.relu(high - low).prod(-1)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    return inner / (area_a[:, None] + area_b[None] - inner)


def encode(anchors, boxes):
    size = anchors[:, 2:] - anchors[:, :2]
    center = (anchors[:, 2:] + anchors[:, :2]) / 2
    goal_size = boxes[:, 2:] - boxes[:, :2]
    goal_center = (boxes[:, 2:] + boxes[:, :2]) / 2
    return ops.cat([(goal_center - center) / size, ops.log(goal_size / size)], -1)


def focal(logits, goal, alpha=0.25, gamma=2.0):
    p = ops.sigmoid(logits)
    ones = ops.ones_like(logits)
    ce = ops.binary_cross_entropy_with_logits(logits, goal, ones, ones, reduction="none")
    p_t = p * goal + (1 - p) * (1 - goal)
    alpha_t = alpha * goal + (1 - alpha) * (1 - goal)
    factor = alpha_t * (1 - p_t) ** gamma
    return factor * ce


def loss(outputs, targets):
    """Focal loss and smooth L1; targets are corners and the class of each object."""
    scores, deltas = outputs
    anchors = make_anchors()
    b, n, classes = scores.shape
    total = 0
    for i in range(b):
        objects = targets[i].astype(ms.float32)
        iou = overlap(anchors, objects[:, :4])
        best, index = iou.max(axis=1), iou.argmax(axis=1)
        positive = (best >= 0.5).astype(ms.float32)
        used = ops.logical_or(best >= 0.5, best < 0.4).astype(ms.float32)
        count = ops.maximum(positive.sum(), Tensor(1.0))
        matched = ops.gather(objects, index, 0)
        label = matched[:, 4].astype(ms.int32)
        goal = ops.one_hot(label, classes, Tensor(1.0), Tensor(0.0)) * positive[:, None]
        class_loss = (focal(scores[i], goal) * used[:, None]).sum() / count
        box_goal = encode(anchors, matched[:, :4])
        distance = ops.smooth_l1_loss(deltas[i], box_goal, beta=1 / 9, reduction="none")
        box_loss = (distance * positive[:, None]).sum() / count
        total = total + class_loss + box_loss
    return total / b
