import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.width = width
        self.igate, self.fgate = nn.Linear(width, width), nn.Linear(width, width)
        self.zgate, self.ogate = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        i, f = torch.sigmoid(self.igate(x)), torch.sigmoid(self.fgate(x))
        z, o = torch.tanh(self.zgate(x)), torch.sigmoid(self.ogate(x))
        c, outputs = x.new_zeros(x.shape[0], self.width), []
        for t in range(x.shape[1]):
            c = f[:, t] * c + i[:, t] * z[:, t]
            outputs.append(o[:, t] * torch.tanh(c))
        return self.norm(torch.stack(outputs, 1))
