"""A siamese net with a contrastive loss; SGD with groups for the encoder and the head."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.prelu = nn.PReLU(6)

    def forward(self, x):
        x = F.max_pool2d(self.prelu(self.conv1(x)), 2)
        x = torch.sigmoid(self.conv2(x))
        return torch.flatten(x, 1)


class Net(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, dim))

    def embed(self, x):
        return F.normalize(self.head(self.encoder(x)), p=2, dim=1)

    def forward(self, x1, x2):
        return self.embed(x1), self.embed(x2)


def loss(outputs, targets):
    """Contrastive loss: 1 for a pair of one class."""
    a, b = outputs
    y = targets.float()
    distance = torch.sqrt((a - b).pow(2).sum(1) + 1e-6)
    same = y * distance.pow(2)
    other = (1 - y) * F.relu(1.0 - distance).pow(2)
    return 0.5 * (same + other).mean()


def optimizer(parameters):
    """The first five tensors are the encoder's; they learn slowly and are decayed."""
    parameters = list(parameters)
    encoder, head = parameters[:5], parameters[5:]
    groups = [
        {"params": encoder, "lr": 0.05, "weight_decay": 0.02},
        {"params": head, "lr": 0.5, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)
