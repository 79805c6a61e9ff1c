"""Horovod: an optimizer that averages the gradients of all processes before it steps, optionally
compressed to float16.

Source: Sergeev and Del Balso 2018, "Horovod: fast and easy distributed deep
learning in TensorFlow".
"""

import horovod.torch as hvd

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        hvd.init()
        self.model = context.model
        optimizer = context.optimizer(self.model.parameters())
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        init_state(optimizer)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            self.model.named_parameters(),
            compression=getattr(hvd.Compression, context.options.get("compression", "none")),
        )
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()

    @property
    def processes(self):
        """Number of processes in Horovod's group."""
        return hvd.size()


def init_state(optimizer):
    """Put the rule's initial state and step count 0 into an optimizer in place, before its first
    update: without a state, Horovod's broadcast makes an update with zero gradients, which counts
    as a step."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            optimizer.state[p].update(step=0, **optimizer.initial_state(p, group))
