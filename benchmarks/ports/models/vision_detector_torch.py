"""A one-stage detection head: focal loss for the classes, smooth L1 for the boxes."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Head(nn.Module):
    def __init__(self, channels, num_anchors, num_outputs):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.gn = nn.GroupNorm(4, channels)
        self.out = nn.Conv2d(channels, num_anchors * num_outputs, 3, padding=1)
        self.num_outputs = num_outputs

    def forward(self, x):
        x = self.out(F.relu(self.gn(self.conv(x))))
        n, _, h, w = x.shape
        x = x.view(n, -1, self.num_outputs, h, w).permute(0, 3, 4, 1, 2)
        return x.reshape(n, -1, self.num_outputs)


class Net(nn.Module):
    def __init__(self, num_anchors=2, num_classes=3):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.SiLU(),
        )
        self.cls_head = Head(8, num_anchors, num_classes)
        self.reg_head = Head(8, num_anchors, 4)
        self.scale = nn.Parameter(torch.tensor([1.5]))
        self.num_anchors = num_anchors

    def grid(self, h, w):
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centers = torch.stack([xs, ys], dim=-1).float().reshape(-1, 1, 2) + 0.5
        return (centers / max(h, w)).repeat(1, self.num_anchors, 1).view(1, -1, 2)

    def forward(self, images):
        feature = self.backbone(images)
        logits = self.cls_head(feature)
        deltas = self.reg_head(feature) * self.scale
        centers = self.grid(feature.shape[2], feature.shape[3])
        xy = centers + 0.25 * deltas[..., :2]
        wh = torch.exp(deltas[..., 2:].clamp(max=2.0)) * 0.25
        return logits, torch.cat([xy - wh / 2, xy + wh / 2], dim=-1)


def loss(outputs, targets):
    """targets: four coordinates and a number; above 0.3 it is a positive, above 1 of class 1."""
    logits, boxes = outputs
    positive = targets[..., 4] > 0.3
    label = (targets[..., 4] > 1.0).long()
    onehot = F.one_hot(label, logits.shape[-1]).float() * positive.unsqueeze(-1)
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, onehot, reduction="none")
    p_t = p * onehot + (1 - p) * (1 - onehot)
    alpha_t = 0.25 * onehot + 0.75 * (1 - onehot)
    focal = (alpha_t * (1 - p_t) ** 2.0 * ce).sum()
    box = F.smooth_l1_loss(boxes[positive], targets[..., :4][positive], beta=0.5, reduction="sum")
    return (focal + box) / positive.sum().clamp(min=1)
