"""A vector-quantised autoencoder; the codebook follows moving averages."""

import torch
from torch import nn
from torch.nn import functional as F


class Quantiser(nn.Module):
    """Nearest codes, straight-through gradient."""

    def __init__(self, codes, d, decay=0.9, eps=1e-5):
        super().__init__()
        self.decay, self.eps = decay, eps
        codebook = torch.randn(codes, d)
        self.register_buffer("codebook", codebook)
        self.register_buffer("cluster_size", torch.ones(codes))
        self.register_buffer("embed_avg", codebook.clone())

    def forward(self, z):
        distance = torch.cdist(z, self.codebook)
        index = distance.argmin(1)
        q = self.codebook[index]
        if self.training:
            self.update(z.detach(), F.one_hot(index, len(self.codebook)).float())
        commitment = F.mse_loss(z, q)
        return z + (q - z).detach(), commitment

    @torch.no_grad()
    def update(self, z, hot):
        self.cluster_size.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(hot.T @ z, alpha=1 - self.decay)
        n = self.cluster_size.sum()
        size = (self.cluster_size + self.eps) / (n + len(hot.T) * self.eps) * n
        self.codebook.copy_(self.embed_avg / size[:, None])


class Net(nn.Module):
    """Outputs the reconstruction and the commitment."""

    def __init__(self, pixels=12, d=4, codes=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 16), nn.ReLU(), nn.Linear(16, d))
        self.quantiser = Quantiser(codes, d)
        self.decoder = nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, pixels))

    def forward(self, x):
        q, commitment = self.quantiser(self.encoder(x))
        return self.decoder(q), commitment


def loss(outputs, targets):
    """Reconstruction and a quarter of the commitment."""
    reconstruction, commitment = outputs
    return F.mse_loss(reconstruction, targets) + 0.25 * commitment
