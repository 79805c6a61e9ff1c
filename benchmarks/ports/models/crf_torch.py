"""Slots by a linear-chain CRF and the intent of the sentence, learned together."""

import torch
from torch import nn
from torch.nn import functional as F


class CRF(nn.Module):
    """Scores of tag sequences and the logarithm of their sum over all sequences."""

    def __init__(self, tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(tags))
        self.end = nn.Parameter(torch.empty(tags))
        self.transitions = nn.Parameter(torch.empty(tags, tags))
        for p in self.parameters():
            nn.init.normal_(p, std=0.7)

    def score(self, emissions, tags, mask):
        last = mask.sum(1).long() - 1
        each = emissions.gather(2, tags.unsqueeze(-1)).squeeze(-1)
        steps = self.transitions[tags[:, :-1], tags[:, 1:]]
        total = self.start[tags[:, 0]] + (each * mask).sum(1) + (steps * mask[:, 1:]).sum(1)
        return total + self.end[tags.gather(1, last.unsqueeze(1)).squeeze(1)]

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for i in range(1, emissions.shape[1]):
            scores = alpha.unsqueeze(2) + self.transitions + emissions[:, i].unsqueeze(1)
            alpha = torch.where(mask[:, i, None] > 0, torch.logsumexp(scores, dim=1), alpha)
        return torch.logsumexp(alpha + self.end, dim=1)


class Net(nn.Module):
    """Outputs the score of the tags, the log partition and the intent's logits."""

    def __init__(self, words=20, d=8, hidden=12, tags=5, intents=4):
        super().__init__()
        self.embed = nn.Embedding(words, d)
        self.conv = nn.Conv1d(d, hidden, 3, padding=1)
        self.emit = nn.Linear(hidden, tags)
        self.intent = nn.Linear(hidden, intents)
        self.crf = CRF(tags)

    def forward(self, words, lengths, tags):
        mask = (torch.arange(words.shape[1]) < lengths[:, None]).float()
        x = self.embed(words) * mask.unsqueeze(-1)
        h = torch.tanh(self.conv(x.transpose(1, 2))).transpose(1, 2)
        emissions = self.emit(h)
        pooled = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        score = self.crf.score(emissions, tags, mask)
        return score, self.crf.partition(emissions, mask), self.intent(pooled)


def loss(outputs, targets):
    """Mean negative log likelihood of the tags, and half the intent's cross entropy."""
    score, partition, intent = outputs
    return (partition - score).mean() + 0.5 * F.cross_entropy(intent, targets)


class LAMB(torch.optim.Optimizer):
    """Adam's step with decay, as long as the weights of its tensor times the rate."""

    def __init__(self, parameters, lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, limit=10.0):
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "limit": limit}
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                state["step"] += 1
                m, v = state["m"], state["v"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                mean = m / (1 - beta1 ** state["step"])
                square = v / (1 - beta2 ** state["step"])
                update = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * p
                length, size = p.norm().clamp(max=group["limit"]), update.norm()
                trust = length / size if length > 0 and size > 0 else 1.0
                p.sub_(group["lr"] * trust * update)


def optimizer(parameters):
    return LAMB(parameters, lr=0.1)
