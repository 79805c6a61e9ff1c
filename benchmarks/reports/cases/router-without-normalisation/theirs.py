import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, width, experts, top):
        super().__init__()
        self.gate, self.top = nn.Linear(width, experts, bias=False), top
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.2)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.2)

    def route(self, x):
        scores = torch.sigmoid(self.gate(x))
        weights, chosen = scores.topk(self.top, -1)
        return weights / (weights.sum(-1, keepdim=True) + 1e-20), chosen

    def forward(self, x):
        weights, chosen = self.route(x)
        hidden = nn.functional.silu(torch.einsum("btd,edh->bteh", x, self.w1))
        outputs = torch.einsum("bteh,ehd->bted", hidden, self.w2)
        picked = outputs.gather(2, chosen[..., None].expand(*chosen.shape, x.shape[-1]))
        return (picked * weights[..., None]).sum(2)


class Net(nn.Module):
    def __init__(self, vocab=40, width=16, experts=6, top=2):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-6)
        self.experts, self.head = Experts(width, experts, top), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(x + self.experts(self.norm(x)))
