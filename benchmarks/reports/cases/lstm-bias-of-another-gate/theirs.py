import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs=5, hidden=8):
        super().__init__()
        self.hidden, both = hidden, inputs + hidden
        self.Wf, self.Wu, self.Wc, self.Wo = (nn.Parameter(torch.randn(both, hidden) * 0.3) for _ in range(4))
        self.bf, self.bu, self.bc, self.bo = (nn.Parameter(torch.randn(hidden) * 0.3) for _ in range(4))

    def forward(self, x):
        a = c = x.new_zeros(len(x), self.hidden)
        outputs = []
        for xt in x.unbind(1):
            zt = torch.cat([a, xt], 1)
            go, gf = torch.sigmoid(zt @ self.Wo + self.bo), torch.sigmoid(zt @ self.Wf + self.bf)
            gu, cc = torch.sigmoid(zt @ self.Wu + self.bu), torch.tanh(zt @ self.Wc + self.bc)
            c = gu * cc + gf * c
            a = go * torch.tanh(c)
            outputs.append(a)
        return torch.stack(outputs, 1)
