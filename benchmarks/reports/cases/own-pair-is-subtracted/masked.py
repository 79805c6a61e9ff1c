import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 8))
        self.temperature = temperature

    def forward(self, views):
        out_1, out_2 = F.normalize(self.encode(views), dim=-1)
        out = torch.cat([out_1, out_2])
        similar = (out @ out.T / self.temperature).exp()
        others = ~torch.eye(len(out), dtype=torch.bool)
        negative = (similar * others).sum(-1)
        positive = ((out_1 * out_2).sum(-1) / self.temperature).exp().repeat(2)
        return -(positive / negative).log().mean()
