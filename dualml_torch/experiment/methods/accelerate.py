"""Hugging Face Accelerate: `prepare` wraps model and optimizer for the processes."""

from accelerate import Accelerator

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.accelerator = Accelerator(cpu=context.device.type == "cpu")
        self.model, self.optimizer = self.accelerator.prepare(
            context.model, context.optimizer(context.model.parameters())
        )
        self.criterion = context.criterion

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
