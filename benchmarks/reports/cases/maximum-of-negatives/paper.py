import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, clip=0.2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
        self.clip = clip

    def forward(self, observations, actions, advantages, old):
        new = self.net(observations).log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)
        ratio = (new - old).exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        objective = torch.min(ratio * advantages, clipped * advantages).mean()
        return -objective
