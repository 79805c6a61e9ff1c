"""The method ``accelerate`` with the test set in a prepared loader: `gather_for_metrics` removes
the samples that the loader repeats so that all processes have equally many batches. Without
``prepared`` every process tests everything, as in scripts that forget to prepare the loader."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod

TEST_BATCH = 64


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.accelerator = Accelerator(cpu=context.device.type == "cpu")
        self.model, self.optimizer = self.accelerator.prepare(
            context.model, context.optimizer(context.model.parameters())
        )
        self.criterion = context.criterion
        self.prepared = context.options["prepared"]

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        self.accelerator.backward(loss * self.weight)
        self.optimizer.step()
        return loss.detach()

    def engine_evaluate(self, predict, samples):
        """Return all processes' prediction rows, each sample's once; unprepared, every process
        predicts all samples, and their rows occur once per process."""
        loader = DataLoader(torch.arange(samples), batch_size=TEST_BATCH)
        gather = self.accelerator.gather
        if self.prepared:
            loader, gather = self.accelerator.prepare(loader), self.accelerator.gather_for_metrics
        return torch.cat([gather(predict(part)) for part in loader])

    @property
    def processes(self):
        """Number of processes in Accelerate's group."""
        return self.accelerator.num_processes
