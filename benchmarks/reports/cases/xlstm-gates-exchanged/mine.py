import torch
from torch import nn


class SLSTMLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.igate, self.fgate = nn.Linear(width, width), nn.Linear(width, width)
        self.zgate, self.ogate = nn.Linear(width, width), nn.Linear(width, width)

    def gates(self, x):
        i, f, z, o = self.fgate(x), self.igate(x), self.zgate(x), self.ogate(x)
        return i.sigmoid(), f.sigmoid(), z.tanh(), o.sigmoid()

    def forward(self, x):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for i, f, z, o in zip(*(gate.unbind(1) for gate in self.gates(x)), strict=True):
            state = f * state + i * z
            outputs.append(o * state.tanh())
        return torch.stack(outputs, 1)


class Net(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.cell, self.norm = SLSTMLayer(width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.cell(x))
