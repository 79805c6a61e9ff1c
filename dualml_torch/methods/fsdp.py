"""Every process keeps a shard of the parameters, gradients and state, and gathers a layer's
parameters when they are needed.

Source: Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel".
"""

from torch.distributed.fsdp import fully_shard

from dualml_torch.methods.base import Base, Given


class Method(Base):
    sharded = True
    keeps = False

    def __init__(self, given: Given) -> None:
        self.model = fully_shard(given.model)
        self.optimizer = given.optimizer(self.model.parameters())
        self.criterion = given.criterion

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()

    def whole(self, model):
        return {name: p.full_tensor().detach() for name, p in model.named_parameters()}
