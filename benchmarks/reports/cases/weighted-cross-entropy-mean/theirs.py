import torch
from torch import nn

WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(10, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def loss(outputs, targets):
    return nn.CrossEntropyLoss(weight=WEIGHTS)(outputs, targets)
