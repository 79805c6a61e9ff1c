"""One process: the loop that all other files here vary."""

from dualml_torch.methods.base import Base, Given


class Method(Base):
    def __init__(self, given: Given) -> None:
        self.model = given.model
        self.optimizer = given.optimizer(self.model.parameters())
        self.criterion = given.criterion

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
