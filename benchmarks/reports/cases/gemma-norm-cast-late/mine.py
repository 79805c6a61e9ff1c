import torch
from torch import nn


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden_size)), eps

    def forward(self, hidden_states):
        kind = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(kind)


class Net(nn.Module):
    def __init__(self, vocab=50, width=32):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, width), LlamaRMSNorm(width), nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)))
