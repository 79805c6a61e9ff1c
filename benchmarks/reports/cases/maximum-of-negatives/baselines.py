import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, clip=0.2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
        self.clip = clip

    def forward(self, observations, actions, advantages, old):
        negative = nn.functional.cross_entropy(self.net(observations), actions, reduction="none")
        ratio = (-negative - old).exp()
        pg_losses = -advantages * ratio
        pg_losses2 = -advantages * ratio.clamp(1 - self.clip, 1 + self.clip)
        return torch.max(pg_losses, pg_losses2).mean()
