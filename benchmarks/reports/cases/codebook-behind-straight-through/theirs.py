import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=6, codes=12):
        super().__init__()
        self.encode, self.codebook = nn.Linear(10, width), nn.Embedding(codes, width)
        self.decode = nn.Linear(width, 10)

    def forward(self, x):
        z = self.encode(x)
        quantized = self.codebook(torch.cdist(z, self.codebook.weight).argmin(-1))
        commitment = F.mse_loss(z, quantized.detach())
        codebook = F.mse_loss(quantized, z.detach())
        quantized = z + (quantized - z).detach()
        return self.decode(quantized), codebook + 0.25 * commitment
