"""A hand-written LSTM cell with layer norm on the cell state, unrolled in a loop."""

import torch
import torch.nn as nn


class LSTMCell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_x = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_h = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        self.ln_gain = nn.Parameter(torch.ones(hidden_size))
        self.ln_shift = nn.Parameter(torch.zeros(hidden_size))
        for p in (self.weight_x, self.weight_h, self.bias):
            nn.init.uniform_(p, -0.4, 0.4)

    def layer_norm(self, c):
        mean = c.mean(-1, keepdim=True)
        std = c.std(-1, keepdim=True, unbiased=False)
        return self.ln_gain * (c - mean) / (std + 1e-3) + self.ln_shift

    def forward(self, x, state):
        h, c = state
        gates = x @ self.weight_x.t() + h @ self.weight_h.t() + self.bias
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.layer_norm(c))
        return h, c


class Net(nn.Module):
    def __init__(self, input_size=5, hidden_size=8, outputs=3):
        super().__init__()
        self.cell = LSTMCell(input_size, hidden_size)
        self.fc = nn.Linear(hidden_size, outputs)

    def forward(self, x):
        b, t, _ = x.shape
        h = x.new_zeros(b, self.cell.hidden_size)
        c = x.new_zeros(b, self.cell.hidden_size)
        outputs = []
        for step in range(t):
            h, c = self.cell(x[:, step], (h, c))
            outputs.append(self.fc(h))
        return torch.stack(outputs, dim=1)


def optimizer(parameters):
    """Adam with a visible eps and decoupled decay of the matrices."""
    parameters = list(parameters)
    matrices = [p for p in parameters if p.ndim == 2]
    vectors = [p for p in parameters if p.ndim == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.98),
        eps=1e-3,
    )
