import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 20), nn.Linear(20, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class AMSGrad(torch.optim.Optimizer):
    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s["step"] = torch.tensor(0.0)
                    for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
                        s[name] = torch.zeros_like(p)
                s["step"] += 1
                t = s["step"].item()
                s["exp_avg"].lerp_(p.grad, 1 - b1)
                s["exp_avg_sq"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                v_hat = s["exp_avg_sq"] / (1 - b2**t)
                torch.maximum(s["max_exp_avg_sq"], v_hat, out=s["max_exp_avg_sq"])
                m_hat = s["exp_avg"] / (1 - b1**t)
                p -= group["lr"] * m_hat / (s["max_exp_avg_sq"].sqrt() + group["eps"])


def make(parameters):
    return AMSGrad(parameters, lr=0.05)
