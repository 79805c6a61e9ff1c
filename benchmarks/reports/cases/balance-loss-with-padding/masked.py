import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, vocab=50, width=16, experts=4, top=2):
        super().__init__()
        self.embed, self.router = nn.Embedding(vocab, width), nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.top, self.head = top, nn.Linear(width, vocab)

    def balance(self, probabilities, chosen, kept):
        used = F.one_hot(chosen, len(self.experts)).sum(-2).to(probabilities.dtype)
        kept = kept[..., None].to(probabilities.dtype)
        share = (used * kept).sum((0, 1)) / kept.sum()
        mean = (probabilities * kept).sum((0, 1)) / kept.sum()
        return len(self.experts) * (share * mean).sum()

    def forward(self, ids, attention_mask):
        x = self.embed(ids)
        probabilities = self.router(x).softmax(-1)
        weights, chosen = probabilities.topk(self.top, -1)
        gates = torch.zeros_like(probabilities).scatter(-1, chosen, weights / weights.sum(-1, True))
        y = sum(gates[..., i, None] * F.gelu(e(x)) for i, e in enumerate(self.experts))
        return self.head(x + y), self.balance(probabilities, chosen, attention_mask)
