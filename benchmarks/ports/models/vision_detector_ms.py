"""A one-stage detection head: focal loss for the classes, smooth L1 for the boxes."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


class Head(nn.Cell):
    def __init__(self, channels, num_anchors, num_outputs):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1, has_bias=True)
        self.gn = nn.GroupNorm(4, channels)
        self.out = nn.Conv2d(
            channels, num_anchors * num_outputs, 3, pad_mode="pad", padding=1, has_bias=True
        )
        self.num_outputs = num_outputs

    def construct(self, x):
        x = self.out(ops.relu(self.gn(self.conv(x))))
        n, _, h, w = x.shape
        x = x.view(n, -1, self.num_outputs, h, w).transpose(0, 3, 4, 1, 2)
        return x.reshape(n, -1, self.num_outputs)


class Net(nn.Cell):
    def __init__(self, num_anchors=2, num_classes=3):
        super().__init__()
        self.backbone = nn.SequentialCell(
            nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True),
            nn.SiLU(),
            nn.Conv2d(8, 8, 3, stride=2, pad_mode="pad", padding=1, has_bias=True),
            nn.SiLU(),
        )
        self.cls_head = Head(8, num_anchors, num_classes)
        self.reg_head = Head(8, num_anchors, 4)
        self.scale = Parameter(Tensor([1.5], ms.float32), name="scale")
        self.num_anchors = num_anchors

    def grid(self, h, w):
        ys, xs = ops.meshgrid(ops.arange(h), ops.arange(w), indexing="ij")
        centers = ops.stack([xs, ys], axis=-1).float().reshape(-1, 1, 2) + 0.5
        return (centers / max(h, w)).tile((1, self.num_anchors, 1)).view(1, -1, 2)

    def construct(self, images):
        feature = self.backbone(images)
        logits = self.cls_head(feature)
        deltas = self.reg_head(feature) * self.scale
        centers = self.grid(feature.shape[2], feature.shape[3])
        xy = centers + 0.25 * deltas[..., :2]
        wh = ops.exp(deltas[..., 2:].clamp(max=2.0)) * 0.25
        return logits, ops.cat([xy - wh / 2, xy + wh / 2], axis=-1)


def smooth_l1(x, y, beta):
    d = ops.abs(x - y)
    return ops.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


def loss(outputs, targets):
    """targets: four coordinates and a number; above 0.3 it is a positive, above 1 of class 1."""
    logits, boxes = outputs
    positive = (targets[..., 4] > 0.3).float()
    label = (targets[..., 4] > 1.0).int()
    onehot = nn.OneHot(depth=logits.shape[-1])(label) * positive.unsqueeze(-1)
    p = ops.sigmoid(logits)
    ce = ops.relu(logits) - logits * onehot + ops.log1p(ops.exp(-ops.abs(logits)))
    p_t = p * onehot + (1 - p) * (1 - onehot)
    alpha_t = 0.25 * onehot + 0.75 * (1 - onehot)
    focal = (alpha_t * (1 - p_t) ** 2.0 * ce).sum()
    box = smooth_l1(boxes, targets[..., :4], beta=0.5)
    box = (box * positive.unsqueeze(-1)).sum()
    return (focal + box) / positive.sum().clamp(min=1.0)
