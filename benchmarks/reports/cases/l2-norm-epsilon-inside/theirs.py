from torch import nn
from torch.nn import functional as F


class L2Norm(nn.Module):
    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.normalize(x, dim=-1, eps=self.eps)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.norm = nn.Linear(20, 12, bias=False), L2Norm()
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.norm(self.project(x)))
