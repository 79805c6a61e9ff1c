"""Two towers for retrieval: DLRM-like user tower, item tower, in-batch softmax with a learned temperature."""

import math

import torch
from torch import nn
from torch.nn import functional as F

FIELDS = (5, 9, 4)
ITEMS = 12


class UserTower(nn.Module):
    """Dense features, hashed fields and the history's mean, with pairwise dot products."""

    def __init__(self, d):
        super().__init__()
        self.fields = nn.ModuleList([nn.Embedding(n, d, padding_idx=0) for n in FIELDS])
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, d), nn.LeakyReLU())
        rows = len(FIELDS) + 2
        self.top = nn.Sequential(nn.Linear(d + rows * (rows - 1) // 2, 24), nn.LeakyReLU(), nn.Linear(24, d))

    def forward(self, dense, ids, liked):
        x = self.bottom(torch.sign(dense) * torch.log1p(dense.abs()))
        rows = [x, *(table(ids[:, i] % table.num_embeddings) for i, table in enumerate(self.fields)), liked]
        z = torch.stack(rows, dim=1)
        dots = torch.bmm(z, z.transpose(1, 2))
        i, j = torch.tril_indices(z.shape[1], z.shape[1], offset=-1)
        return self.top(torch.cat([x, dots[:, i, j]], dim=1))


class ItemTower(nn.Module):
    """The item's row and its features."""

    def __init__(self, d):
        super().__init__()
        self.features = nn.Linear(3, 6)
        self.mlp = nn.Sequential(nn.Linear(d + 6, 24), nn.LeakyReLU(), nn.Linear(24, d))

    def forward(self, row, features):
        return self.mlp(torch.cat([row, torch.tanh(self.features(features))], dim=-1))


class Net(nn.Module):
    """Outputs the scores of all users for all items, and which items are the same."""

    def __init__(self, d=8):
        super().__init__()
        self.items = nn.Embedding(ITEMS, d, padding_idx=0)
        self.user = UserTower(d)
        self.item = ItemTower(d)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))

    def forward(self, dense, ids, history, item, features):
        liked = F.embedding_bag(history, self.items.weight, mode="mean", padding_idx=0)
        u = F.normalize(self.user(dense, ids, liked), dim=-1)
        v = F.normalize(self.item(self.items(item), features), dim=-1)
        same = (item[:, None] == item[None, :]).float()
        return u @ v.T * self.log_scale.exp().clamp(max=100), same


def loss(outputs, targets):
    """In-batch softmax corrected by the items' log-frequencies, accidental hits taken out."""
    logits, same = outputs
    n = logits.shape[0]
    hits = (same > 0) & ~torch.eye(n, dtype=torch.bool)
    logits = (logits - targets[None, :]).masked_fill(hits, -1e4)
    return F.cross_entropy(logits, torch.arange(n))
