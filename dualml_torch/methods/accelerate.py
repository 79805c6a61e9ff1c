"""Hugging Face Accelerate: `prepare` wraps model and optimizer for the processes."""

from accelerate import Accelerator

from dualml_torch.methods.base import Base, Given


class Method(Base):
    def __init__(self, given: Given) -> None:
        self.accelerator = Accelerator(cpu=given.device.type == "cpu")
        self.model, self.optimizer = self.accelerator.prepare(
            given.model, given.optimizer(given.model.parameters())
        )
        self.criterion = given.criterion

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        self.accelerator.backward(loss * self.weight)
        self.optimizer.step()
        return loss.detach()

    @property
    def processes(self):
        return self.accelerator.num_processes
