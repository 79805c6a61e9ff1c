"""A VAE on small images; the noise is an input."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden=20, latent=5):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(64, hidden)
        self.fc_mu = nn.Linear(hidden, latent)
        self.fc_logvar = nn.Linear(hidden, latent)
        self.fc2 = nn.Linear(latent, hidden)
        self.fc3 = nn.Linear(hidden, 64)

    def encode(self, x):
        h = F.elu(self.conv(x)).flatten(1)
        h = torch.tanh(self.fc1(h))
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar, noise):
        std = torch.exp(0.5 * logvar)
        return mu + noise * std

    def decode(self, z):
        h = F.softplus(self.fc2(z))
        return self.fc3(h).view(-1, 1, 8, 8)

    def forward(self, x, noise):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar, noise)
        return self.decode(z), mu, logvar


def loss(outputs, targets):
    """Squared error summed over the pixels, plus the KL divergence; mean over the batch."""
    recon, mu, logvar = outputs
    mse = F.mse_loss(recon, targets, reduction="sum") / targets.shape[0]
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return mse + 0.5 * kl


def optimizer(parameters):
    return torch.optim.RMSprop(parameters, lr=2e-3, alpha=0.95, eps=1e-3, momentum=0.5)
