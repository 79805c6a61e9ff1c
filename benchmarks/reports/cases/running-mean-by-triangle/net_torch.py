import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.into, self.out = nn.Linear(2, width), nn.Linear(width, 2)

    def forward(self, x):
        x = torch.tanh(self.into(x))
        means = [x[:, : t + 1].mean(1) for t in range(x.shape[1])]
        return self.out(torch.stack(means, 1))
