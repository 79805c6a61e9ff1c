"""The method ``accelerate`` with the training set in a prepared loader, which gives every process
its slice of each global batch. With ``even_batches``, the default, it would fill up the last batch
with samples of the first one."""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from dualml.common.errors import Unsupported
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Batches:
    """A batch sampler that yields the plan's global batches."""

    drop_last = False

    def __init__(self, batch_size):
        self.batch_size, self.batches = batch_size, []

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        if context.batch % context.processes:
            raise Unsupported(
                f"Accelerate's split_batches needs a batch_size that is a multiple of the "
                f"processes: {context.batch} samples for {context.processes}; use another "
                "batch_size"
            )
        config = DataLoaderConfiguration(split_batches=True, even_batches=False)
        self.accelerator = Accelerator(cpu=context.device.type == "cpu", dataloader_config=config)
        self.sampler = Batches(context.batch)
        samples = TensorDataset(torch.arange(len(context.samples[1])), *context.samples)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            context.model,
            context.optimizer(context.model.parameters()),
            DataLoader(samples, batch_sampler=self.sampler),
        )
        self.criterion = context.criterion

    def load_batches(self, batches):
        """Yield positions, samples and labels of this process's part of each global batch, in the
        order of ``batches``."""
        full = self.sampler.batch_size
        while batches:  # a smaller batch ends an epoch: Accelerate would drop it before others
            ends = [n for n, batch in enumerate(batches, 1) if len(batch) < full]
            end = ends[0] if ends else len(batches)
            self.sampler.batches = [batch.tolist() for batch in batches[:end]]
            yield from self.loader
            batches = batches[end:]

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        self.accelerator.backward(loss * self.weight)
        self.optimizer.step()
        return loss.detach()

    @property
    def processes(self):
        """Number of processes in Accelerate's group."""
        return self.accelerator.num_processes
