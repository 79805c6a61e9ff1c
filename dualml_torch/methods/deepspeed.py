"""DeepSpeed: its engine keeps the optimizer's state (ZeRO 1), gradients (ZeRO 2), and weights (ZeRO
3), in shards.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models".
"""

import deepspeed

from dualml_torch.methods.base import Base, Given


class Method(Base):
    sharded = True
    keeps = False

    def __init__(self, given: Given) -> None:
        # It would compile an extension first, for minutes, that two processes can do without.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.model, self.optimizer, *_ = deepspeed.initialize(
            model=given.model,
            optimizer=given.optimizer(given.model.parameters()),
            config={
                "train_micro_batch_size_per_gpu": 1,  # asked for; batches may have any size
                "zero_optimization": {
                    "stage": given.options["stage"],
                    "stage3_param_persistence_threshold": 0,  # smaller tensors would stay whole
                },
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                "gradient_clipping": 0.0,  # 1.0 unless it is told: another rule of update
            },
        )
        self.criterion = given.criterion

    def step(self, x, y):
        loss = self.criterion(self.model(*x), y)
        self.model.backward(loss * self.weight)
        self.model.step()
        return loss.detach()

    @property
    def processes(self):
        return self.model.world_size

    def whole(self, model):
        if not hasattr(next(model.parameters()), "ds_tensor"):
            return super().whole(model)
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return {name: p.detach().clone() for name, p in model.named_parameters()}
