import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, rows=6, width=8):
        super().__init__()
        self.table, self.fc = nn.Parameter(torch.randn(rows, width)), nn.Linear(width, width)

    def forward(self, index):
        x = torch.tanh(self.fc(self.table))
        y = x.clone()
        y[index + 2] += y[index + 2]
        return y * 0.5
