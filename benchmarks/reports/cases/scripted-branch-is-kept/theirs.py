import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        y = self.fc1(x)
        if bool(x.mean() > 0):
            y = torch.relu(y)
        else:
            y = torch.tanh(y)
        return self.fc2(y)
