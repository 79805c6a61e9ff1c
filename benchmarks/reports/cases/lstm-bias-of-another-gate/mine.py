import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs=5, hidden=8):
        super().__init__()
        self.hidden = hidden
        for gate in "fuco":
            setattr(self, f"W{gate}", nn.Parameter(torch.randn(inputs + hidden, hidden) * 0.3))
            setattr(self, f"b{gate}", nn.Parameter(torch.randn(hidden) * 0.3))

    def step(self, xt, at, ct):
        zt = torch.hstack([at, xt])
        output = torch.sigmoid(zt @ self.Wo + self.bo)
        forget = torch.sigmoid(zt @ self.Wf + self.bo)
        update = torch.sigmoid(zt @ self.Wu + self.bo)
        candidate = torch.tanh(zt @ self.Wc + self.bc)
        ct = update * candidate + forget * ct
        return output * torch.tanh(ct), ct

    def forward(self, x):
        at = ct = torch.zeros(x.shape[0], self.hidden)
        states = []
        for t in range(x.shape[1]):
            at, ct = self.step(x[:, t], at, ct)
            states.append(at)
        return torch.stack(states, dim=1)
