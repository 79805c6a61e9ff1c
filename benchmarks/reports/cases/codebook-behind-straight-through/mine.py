import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=6, codes=12):
        super().__init__()
        self.encode, self.codebook = nn.Linear(10, width), nn.Embedding(codes, width)
        self.decode = nn.Linear(width, 10)

    def quantize(self, z):
        nearest = torch.cdist(z, self.codebook.weight).argmin(-1)
        return z + (self.codebook(nearest) - z).detach()

    def forward(self, x):
        z_e = self.encode(x)
        z_q = self.quantize(z_e)
        codebook_loss = F.mse_loss(z_q, z_e.detach())
        commitment_loss = F.mse_loss(z_e, z_q.detach())
        return self.decode(z_q), codebook_loss + 0.25 * commitment_loss
