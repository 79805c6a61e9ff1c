import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, classes=17):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 20), nn.Linear(20, classes)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def loss(outputs, targets, temperature=4.0):
    target = F.softmax(targets / temperature, dim=1).detach()
    kd = F.kl_div(F.log_softmax(outputs / temperature, dim=1), target, reduction="none").mean(1)
    return (kd * (temperature * temperature)).mean()
