import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x


class Trainer:
    def __init__(self, names):
        torch.manual_seed(79)
        self.model = Net()
        named = dict(self.model.named_parameters())
        self.optimizer = torch.optim.SGD([named[n] for n in names(named)], lr=0.05, momentum=0.9)
        self.recorder = None

    def update(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        if self.recorder:
            self.recorder.saw(loss=loss)
        self.optimizer.step()

    def fit(self, batches):
        for x, y in batches:
            if self.recorder:
                self.recorder.run(self.update, x, y)
            else:
                self.update(x, y)


trainer = Trainer(list)
batches = [(torch.randn(8, 12), torch.randn(8, 12)) for _ in range(9)]
trainer.fit(batches[:6])
if kind == "resumed":
    torch.save((trainer.model.state_dict(), trainer.optimizer.state_dict()), "checkpoint.pt")
    trainer = Trainer(lambda named: sorted(named, reverse=True))
    weights, state = torch.load("checkpoint.pt")
    trainer.model.load_state_dict(weights)
    trainer.optimizer.load_state_dict(state)
trainer.recorder = Recorder(trainer.model, kind, trainer.optimizer, steps=3)
trainer.fit(batches[6:])
