import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        length, batch, width = x.shape
        mixed = self.in_proj(x).view(length, batch * self.heads, 3, width // self.heads)
        q, k, v = (mixed[:, :, i].transpose(0, 1) for i in range(3))
        weights = torch.bmm(q, k.transpose(1, 2)) * (width // self.heads) ** -0.5
        y = torch.bmm(weights.softmax(-1), v)
        return self.out_proj(y.transpose(0, 1).reshape(length, batch, width))
