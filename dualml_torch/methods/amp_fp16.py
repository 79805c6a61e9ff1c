"""One process with matrix products in float16, and a scaled loss so that small gradients do not
vanish.

Source: Micikevicius et al. 2018, "Mixed Precision Training".
"""

import torch

from dualml_torch.methods.base import Base, Given


class Method(Base):
    keeps = False

    def __init__(self, given: Given) -> None:
        self.model = given.model
        self.optimizer = given.optimizer(self.model.parameters())
        self.criterion = given.criterion
        self.autocast = torch.autocast(given.device.type, torch.float16)
        self.scaler = torch.amp.GradScaler(given.device.type)

    def step(self, x, y):
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.criterion(self.model(*x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()
