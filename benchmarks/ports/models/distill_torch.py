"""A student learns from a frozen teacher and from labels with a focal loss."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    """Ten inputs, five classes."""
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.LayerNorm(12), nn.Linear(12, 5))


class Net(nn.Module):
    """Outputs the student's and the teacher's logits."""

    def __init__(self):
        super().__init__()
        self.student = mlp()
        self.teacher = mlp()
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        with torch.no_grad():
            self.teacher[-1].weight.mul_(4)

    def forward(self, x):
        return self.student(x), self.teacher(x)


def loss(outputs, targets, temperature=4.0, alpha=0.7, gamma=2.0):
    """Kullback-Leibler divergence at a temperature, and the focal loss."""
    student, teacher = outputs
    kl = F.kl_div(
        F.log_softmax(student / temperature, dim=-1),
        F.softmax(teacher / temperature, dim=-1),
        reduction="batchmean",
    )
    ce = F.cross_entropy(student, targets, reduction="none")
    focal = ((1 - torch.exp(-ce)) ** gamma * ce).mean()
    return alpha * temperature**2 * kl + (1 - alpha) * focal


def optimizer(parameters):
    """Nesterov's momentum; biases and norms without decay."""
    parameters = list(parameters)
    return torch.optim.SGD(
        [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=0.05,
        momentum=0.9,
        weight_decay=0.05,
        nesterov=True,
    )
