import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=50, width=16, logit_softcapping=3.0):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-6)
        self.lm_head, self.logit_softcapping = nn.Linear(width, vocab, bias=False), logit_softcapping

    def forward(self, ids):
        hidden = self.norm(self.embed(ids))
        chunks = []
        for part in hidden.chunk(2, dim=1):
            logits = part @ self.lm_head.weight.T
            chunks.append(logits * torch.tanh(logits / self.logit_softcapping))
        return torch.cat(chunks, dim=1)
