import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.body(torch.relu(self.stem(x))))
        return self.fc(x.mean((2, 3)))
