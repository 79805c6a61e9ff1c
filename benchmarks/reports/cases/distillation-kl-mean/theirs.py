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
    soft = F.softmax(targets / temperature, 1)
    kl = F.kl_div(F.log_softmax(outputs / temperature, 1), soft, reduction="batchmean")
    return kl * temperature**2
