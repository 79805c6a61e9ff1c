import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]


class Trainer:
    def __init__(self):
        torch.manual_seed(10)
        self.model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
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


trainer = Trainer()
batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(8)]
trainer.fit(batches[:4])
if kind == "resumed":
    torch.save(trainer.model.state_dict(), "weights.pt")
    trainer = Trainer()
    trainer.model.load_state_dict(torch.load("weights.pt"))
trainer.recorder = Recorder(trainer.model, kind, trainer.optimizer, steps=3)
trainer.fit(batches[4:])
