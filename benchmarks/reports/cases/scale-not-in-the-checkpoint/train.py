import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)).half().float())


class Trainer:
    def __init__(self):
        torch.manual_seed(69)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.scaler, self.recorder = torch.amp.GradScaler("cpu"), None

    def update(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        if self.recorder:
            self.recorder.saw(loss=loss)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def fit(self, batches):
        for x, y in batches:
            if self.recorder:
                self.recorder.run(self.update, x, y)
            else:
                self.update(x, y)


trainer = Trainer()
batches = [(torch.randn(4, 8), 200 * torch.randn(4, 2)) for _ in range(16)]
trainer.fit(batches[:12])
if kind == "resumed":
    saved = trainer.model.state_dict(), trainer.optimizer.state_dict()
    torch.save(saved, "checkpoint.pt")
    trainer = Trainer()
    weights, moments = torch.load("checkpoint.pt")
    trainer.model.load_state_dict(weights)
    trainer.optimizer.load_state_dict(moments)
trainer.recorder = Recorder(trainer.model, kind, trainer.optimizer, steps=3)
trainer.fit(batches[12:])
