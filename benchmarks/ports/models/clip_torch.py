"""Two towers and CLIP's symmetric loss with a learned temperature."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """Outputs both unit vectors and the scale."""

    def __init__(self, pixels=12, vocab=15, d=16, shared=8):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(pixels, d), nn.ReLU(), nn.Linear(d, d))
        self.ln_post = nn.LayerNorm(d)
        self.visual_projection = nn.Parameter(torch.randn(d, shared) * d**-0.5)
        self.token_embedding = nn.Embedding(vocab, d)
        self.ln_final = nn.LayerNorm(d)
        self.text_projection = nn.Parameter(torch.randn(d, shared) * d**-0.5)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text, lengths):
        image = self.ln_post(self.visual(image)) @ self.visual_projection
        keep = (torch.arange(text.shape[1])[None] <= lengths[:, None]).float()
        x = (self.token_embedding(text) * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
        text = self.ln_final(x) @ self.text_projection
        scale = self.logit_scale.exp().clamp(max=100)
        return F.normalize(image, dim=-1), F.normalize(text, dim=-1), scale


def loss(outputs, targets=None):
    """Cross-entropy of images to texts and of texts to images."""
    image, text, scale = outputs
    logits = scale * image @ text.T
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def optimizer(parameters):
    """No decay of gains, biases and the scale."""
    parameters = list(parameters)
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.2},
        ],
        lr=5e-3,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
