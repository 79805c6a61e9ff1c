"""DeepSpeed: its engine shards optimizer state (ZeRO 1), gradients (ZeRO 2) and weights (ZeRO 3);
optionally in bfloat16, with state and weights in host memory or on disk.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models"; Ren et al. 2021, "ZeRO-Offload"; Rajbhandari et al. 2021, "ZeRO-Infinity".
"""

import shutil
import tempfile

import deepspeed
import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param
from torch import nn

from dualml.common.errors import Unsupported
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod

#: Settings that the plan decides, and defaults of DeepSpeed that must be overridden.
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,  # required; batches may have any size
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "gradient_clipping": 0.0,  # the default of 1.0 would change the update rule
}


class Bfloat16Model(nn.Module):
    """A model with bfloat16 weights; float32 intermediate results, such as means, are cast for the
    next product."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *x):
        """Run the model on the inputs ``x`` in bfloat16 autocast and return its output as it is."""
        with torch.autocast(x[0].device.type, torch.bfloat16):
            return self.model(*x)


class Method(TrainingMethod):
    sharded = True
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        # Skip an extension that takes minutes to compile and that two processes do not need.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self.folder = ""
        config = {**context.config, **CONFIG, "bf16": {"enabled": "bf16" in context.options}}
        config["zero_optimization"] = self.zero_config(context)
        low_precision = "bf16" in context.options
        weights = [p.detach().clone() for p in context.model.parameters()] if low_precision else []
        self.model, self.optimizer, *_ = deepspeed.initialize(
            model=Bfloat16Model(context.model) if low_precision else context.model,
            optimizer=context.optimizer(context.model.parameters()),
            config=config,
        )
        if low_precision:  # DeepSpeed makes its float32 weights from those it rounded to bfloat16
            for parameter, weight in zip(context.model.parameters(), weights, strict=True):
                safe_set_full_fp32_param(parameter, weight)
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        loss = self.criterion(self.model(*x).float(), y)
        self.model.backward(loss * self.weight)
        self.model.step()
        return loss.detach()

    def zero_config(self, context):
        """Return DeepSpeed's ``zero_optimization`` configuration: the user's own with the method's
        stage and offloading devices; for ``nvme`` it makes the folder, see `nvme_folder`."""
        own, options = context.config.get("zero_optimization", {}), context.options
        table = {
            "stage3_param_persistence_threshold": 0,  # smaller tensors would not be sharded
            **own,
            "stage": options["stage"],
        }
        for key in ("offload_optimizer", "offload_param"):
            if device := options.get(key):
                table[key] = {**own.get(key, {}), "device": device}
                if device == "nvme":
                    table[key]["nvme_path"] = self.nvme_folder(table[key].get("nvme_path"))
        return table

    def nvme_folder(self, path):
        """Return this process's folder for files of weights and state; made anew in ``path`` (None:
        the system's temporary folder) at the first call. Unsupported: no libaio."""
        if not deepspeed.ops.op_builder.AsyncIOBuilder().is_compatible(verbose=False):
            raise Unsupported(
                "DeepSpeed reads and writes disks by libaio, which it compiles against: install it "
                "with apt-get install libaio-dev (Debian, Ubuntu) and a C++ compiler"
            )
        self.folder = self.folder or tempfile.mkdtemp(prefix="dualml-nvme-", dir=path)
        return self.folder

    def close(self):
        """Delete the folder of weights and state on disk, if there is one."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def processes(self):
        """Number of processes in DeepSpeed's group."""
        return self.model.world_size

    def gather_parameters(self, model):
        """Return the full parameters by name, the float32 ones if the model is in bfloat16; all
        ranks call it."""
        if isinstance(self.model.module, Bfloat16Model):  # the float32 weights, which are updated
            parameters = model.named_parameters()
            return {name: safe_get_full_fp32_param(p).detach() for name, p in parameters}
        if not hasattr(next(model.parameters()), "ds_tensor"):
            return super().gather_parameters(model)
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return {name: p.detach().clone() for name, p in model.named_parameters()}
