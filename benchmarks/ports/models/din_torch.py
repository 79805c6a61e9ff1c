"""Deep interest network for click-through rates, with a factorisation machine beside the deep part."""

import torch
from torch import nn
from torch.nn import functional as F


class Dice(nn.Module):
    """x where the normalised x is large, alpha * x where it is small, softly."""

    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.bn = nn.BatchNorm1d(num_features, eps=eps, momentum=0.1, affine=False)
        self.alpha = nn.Parameter(torch.full((num_features,), 0.25))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        p = torch.sigmoid(self.bn(x))
        return (p * x + (1 - p) * self.alpha * x).reshape(shape)


class LocalActivationUnit(nn.Module):
    """How much each past behaviour matters for the candidate."""

    def __init__(self, dim, hidden=(16, 8)):
        super().__init__()
        self.fc1 = nn.Linear(4 * dim, hidden[0])
        self.dice = Dice(hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.prelu = nn.PReLU(hidden[1])
        self.fc3 = nn.Linear(hidden[1], 1)

    def forward(self, query, keys):
        query = query.unsqueeze(1).expand_as(keys)
        x = torch.cat([query, keys, query - keys, query * keys], dim=-1)
        x = self.dice(self.fc1(x))
        x = self.prelu(self.fc2(x).transpose(1, 2)).transpose(1, 2)
        return self.fc3(x).squeeze(-1)  # (B, T)


class AttentionPooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.unit = LocalActivationUnit(dim)

    def forward(self, query, keys, length):
        mask = torch.arange(keys.shape[1])[None, :] < length[:, None]
        weights = self.unit(query, keys).masked_fill(~mask, 0.0)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)


class FactorizationMachine(nn.Module):
    """Second-order interactions of the fields: half of (square of sum - sum of squares)."""

    def forward(self, fields):
        square_of_sum = fields.sum(dim=1).pow(2)
        sum_of_square = fields.pow(2).sum(dim=1)
        return 0.5 * (square_of_sum - sum_of_square).sum(dim=1)


class Net(nn.Module):
    """Returns the logit of a click and the embeddings of the sample (for their penalty)."""

    def __init__(self, users=12, items=10, cates=6, dim=8):
        super().__init__()
        self.dim = dim
        self.user_emb = nn.Embedding(users, dim, padding_idx=0)
        self.item_emb = nn.Embedding(items, dim, padding_idx=0)
        self.cate_emb = nn.Embedding(cates, dim, padding_idx=0)
        for emb in (self.user_emb, self.item_emb, self.cate_emb):
            nn.init.normal_(emb.weight, std=0.4)
            with torch.no_grad():
                emb.weight[0].zero_()
        self.attention = AttentionPooling(2 * dim)
        self.fm = FactorizationMachine()
        self.mlp = nn.Sequential(
            nn.Linear(7 * dim, 24),
            Dice(24),
            nn.Linear(24, 12),
            Dice(12),
            nn.Linear(12, 1),
        )
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, user, item, cate, hist_item, hist_cate, length):
        u = self.user_emb(user)
        query = torch.cat([self.item_emb(item), self.cate_emb(cate)], dim=-1)
        keys = torch.cat([self.item_emb(hist_item), self.cate_emb(hist_cate)], dim=-1)
        interest = self.attention(query, keys, length)

        deep = self.mlp(torch.cat([u, query, interest, query * interest], dim=-1)).squeeze(-1)
        fields = torch.cat([u, query, interest], dim=-1).reshape(-1, 5, self.dim)
        logit = deep + self.fm(fields)
        return logit, torch.cat([u, query], dim=-1)


def loss(outputs, targets, pos_weight=2.0, l2=0.02):
    """Clicks are rare and weigh twice; the embeddings of the sample are kept small."""
    logit, embeddings = outputs
    bce = F.binary_cross_entropy_with_logits(logit, targets.float(), pos_weight=torch.tensor(pos_weight))
    return bce + 0.5 * l2 * embeddings.pow(2).sum(dim=1).mean()


class ProximalAdagrad(torch.optim.Optimizer):
    """Adagrad whose step is followed by the proximal step of l1 and l2."""

    def __init__(self, params, lr=0.05, lr_decay=0.2, l1=2e-3, l2=1e-2, initial_accumulator_value=0.1):
        defaults = dict(lr=lr, lr_decay=lr_decay, l1=l1, l2=l2)
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = 0
                self.state[p]["sum"] = torch.full_like(p, initial_accumulator_value)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] += 1
                lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
                state["sum"].addcmul_(p.grad, p.grad)
                rate = lr / state["sum"].sqrt()
                prox = p - rate * p.grad
                shrunk = torch.clamp(prox.abs() - rate * group["l1"], min=0)
                p.copy_(prox.sign() * shrunk / (1 + rate * group["l2"]))


def optimizer(parameters):
    return ProximalAdagrad(parameters)
