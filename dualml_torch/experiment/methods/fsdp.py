"""FSDP: every process keeps a shard of parameters, gradients and state, and gathers the parameters
when they are needed: of the whole model at once, or layer by layer.

Source: Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel".
"""

from torch import nn
from torch.distributed.fsdp import fully_shard

from dualml.common.errors import Unsupported
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    sharded = True
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        if "reshard" in context.options:  # a group per layer, and one for the rest
            for layer in shardable_layers(context.model):
                fully_shard(layer, reshard_after_forward=context.options["reshard"])
        self.model = fully_shard(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
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

    def gather_parameters(self, model):
        """Return the full parameters by name, all-gathered from their shards; all ranks call it."""
        return {name: p.full_tensor().detach() for name, p in model.named_parameters()}


def shardable_layers(model: nn.Module) -> list[nn.Module]:
    """Return the model's direct children that have parameters; raise Unsupported if any parameter
    occurs twice in the model, shared by two layers or in a layer that is used twice: FSDP would
    train it twice."""
    if len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        raise Unsupported(
            "fully_shard layer by layer trains what layers share as parameters of "
            "each; leave the table untied (sizes.tied = false), or use method = fsdp"
        )
    return [layer for layer in model.children() if any(True for _ in layer.parameters())]
