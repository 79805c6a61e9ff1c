import torch
from torch import nn


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, width, experts, top):
        super().__init__()
        self.gate, self.top = nn.Linear(width, experts, bias=False), top

    def forward(self, x):
        return torch.topk(torch.sigmoid(self.gate(x)), self.top, dim=-1)


class MoE(nn.Module):
    def __init__(self, width, experts, top):
        super().__init__()
        self.router = TokenChoiceTopKRouter(width, experts, top)
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.2)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.2)

    def forward(self, x):
        scores, experts = self.router(x)
        hidden = nn.functional.silu(torch.einsum("btd,edh->bteh", x, self.w1))
        outputs = torch.einsum("bteh,ehd->bted", hidden, self.w2)
        picked = outputs.gather(2, experts[..., None].expand(*experts.shape, x.shape[-1]))
        return (picked * scores[..., None]).sum(2)


class Net(nn.Module):
    def __init__(self, vocab=40, width=16, experts=6, top=2):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-6)
        self.moe, self.head = MoE(width, experts, top), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(x + self.moe(self.norm(x)))
