"""SimSiam: projector, predictor and stopped gradients of the other view."""

from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width=16, dim=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(
            nn.Linear(8, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, dim)
        )

    def forward(self, x1, x2):
        z1 = self.projector(self.encoder(x1))
        z2 = self.projector(self.encoder(x2))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1.detach(), z2.detach()


def loss(outputs, targets=None):
    p1, p2, z1, z2 = outputs
    first = F.cosine_similarity(p1, z2, dim=-1).mean()
    second = F.cosine_similarity(p2, z1, dim=-1).mean()
    return -(first + second) * 0.5
