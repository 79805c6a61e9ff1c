"""A small Mamba language model: selective state spaces in plain PyTorch, after mamba-minimal."""

import math

import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    """The mixer: projection, causal convolution, selective scan, gate."""

    def __init__(self, d_model, d_state=4, d_conv=4, expand=2, dt_rank=3, dt_min=0.05, dt_max=0.8):
        super().__init__()
        self.d_inner = expand * d_model
        self.d_state = d_state
        self.dt_rank = dt_rank
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(
            self.d_inner, self.d_inner, kernel_size=d_conv, groups=self.d_inner, padding=d_conv - 1, bias=True
        )
        self.x_proj = nn.Linear(self.d_inner, dt_rank + 2 * d_state, bias=False)
        nn.init.normal_(self.x_proj.weight, std=0.5)
        self.dt_proj = nn.Linear(dt_rank, self.d_inner, bias=True)

        # softplus(bias) lies between dt_min and dt_max at the start
        dt = torch.exp(torch.rand(self.d_inner) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))

        A = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(self.d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.A_log._no_weight_decay = True
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.D._no_weight_decay = True
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, x):
        _, length, _ = x.shape
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :length].transpose(1, 2)
        x = F.silu(x)
        y = self.ssm(x)
        return self.out_proj(y * F.silu(z))

    def ssm(self, x):
        A = -torch.exp(self.A_log)
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        return self.selective_scan(x, dt, A, B, C)

    def selective_scan(self, u, dt, A, B, C):
        b, length, d = u.shape
        dA = torch.exp(dt.unsqueeze(-1) * A)  # (b, l, d, n)
        dBu = dt.unsqueeze(-1) * B.unsqueeze(2) * u.unsqueeze(-1)
        h = torch.zeros(b, d, self.d_state)
        ys = []
        for t in range(length):
            h = dA[:, t] * h + dBu[:, t]
            ys.append((h * C[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(ys, dim=1) + u * self.D


class ResidualBlock(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm = RMSNorm(d_model)
        self.mixer = MambaBlock(d_model)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Net(nn.Module):
    def __init__(self, vocab_size=20, d_model=16, n_layer=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList([ResidualBlock(d_model) for _ in range(n_layer)])
        self.norm_f = RMSNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.lm_head.weight = self.embedding.weight

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def loss(logits, targets):
    """Cross entropy of the next token; padding does not count."""
    logits = logits[:, :-1].reshape(-1, logits.shape[-1])
    labels = targets[:, 1:].reshape(-1)
    return F.cross_entropy(logits, labels, ignore_index=PAD)


class AdamW(torch.optim.Optimizer):
    """AdamW with linear warm-up; the gradients are clipped to a global norm first."""

    def __init__(self, groups, lr, betas=(0.9, 0.95), eps=1e-8, max_norm=0.5, warmup=3):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=0.0))
        self.max_norm = max_norm
        self.warmup = warmup
        self.t = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.t += 1
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        clip = torch.clamp(self.max_norm / (total + 1e-6), max=1.0)
        for group in self.param_groups:
            lr = group["lr"] * min(1.0, self.t / self.warmup)
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad * clip
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                m, v = state["m"], state["v"]
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                m_hat = m / (1 - beta1**self.t)
                v_hat = v / (1 - beta2**self.t)
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(lr * m_hat / (v_hat.sqrt() + group["eps"]))


def optimizer(parameters):
    """Matrices decay; biases, norms, A_log and D do not."""
    decay, no_decay = [], []
    for p in parameters:
        if p.ndim < 2 or getattr(p, "_no_weight_decay", False):
            no_decay.append(p)
        else:
            decay.append(p)
    groups = [{"params": decay, "weight_decay": 0.2}, {"params": no_decay, "weight_decay": 0.0}]
    return AdamW(groups, lr=0.02)
