"""DeepSpeed's PipelineModule: consecutive layers form stages on different ranks; ranks with the
same stage average their gradients. The samples of a pipeline group are processed as one micro-batch
for each of its ranks.

Source: Microsoft, "DeepSpeed: Extreme-scale model training for everyone", 2020 (3D parallelism).
"""

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule
from torch import nn

from dualml.algorithms.model.layers import PADDING
from dualml.common.errors import Unsupported
from dualml_torch.algorithms.model import ModelPart
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class PipelineLayer(nn.Module):
    """One layer as a pipeline module: maps the values before it to those after it, as a tuple; for
    padded text with a mask of the tokens."""

    def __init__(self, part, padded, first, last):
        super().__init__()
        self.part, self.padded, self.first, self.last = part, padded, first, last

    def forward(self, values):
        """Return the stack after the layer, a tuple, with the token mask behind it if padded; of
        the last layer the logits alone."""
        values = values if isinstance(values, tuple) else (values,)
        here = None
        if self.padded:
            *values, here = (values[0], values[0] != PADDING) if self.first else values
        after = self.part(tuple(values), (), None if here is None else here.bool())
        if self.last:
            return after[-1]
        return (*after, here.to(torch.int32)) if self.padded else after


class Method(TrainingMethod):
    sharded = True
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        stages, spec = context.options["stages"], context.model.spec
        check_supported(context.model, context.processes, stages)
        # Skip an extension that takes minutes to compile and that these processes do not need.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(auto_mpi_discovery=False)
        own, ends = context.model.canonical(), (0, len(spec.layers) - 1)
        layers = [
            PipelineLayer(
                ModelPart([layer], others=own),
                spec.needs_padding_mask,
                number == ends[0],
                number == ends[1],
            )
            for number, layer in enumerate(spec.layers)
        ]
        self.whole_loss, self.loss_factor = context.criterion, 1.0
        module = PipelineModule(
            layers, num_stages=stages, loss_fn=self.criterion, dynamic_shape=True
        )
        self.shapes = {name: p.shape for name, p in own.items()}
        self.grid, self.owners = module._grid, stage_by_parameter(module, layers, own)
        config = {
            "train_micro_batch_size_per_gpu": 1,  # required; batches may have any size
            "gradient_accumulation_steps": stages,
            "gradient_clipping": 0.0,
        }
        self.model, self.optimizer, *_ = deepspeed.initialize(
            model=module, optimizer=context.optimizer(module.parameters()), config=config
        )
        for name, p in own.items():
            if self.owners[name] != self.grid.get_stage_id():
                p.data = p.data.new_empty(0)

    def criterion(self, outputs, y):
        """Return the sum of the samples' losses times ``loss_factor``, chosen so that the mean over
        micro-batches that the engine takes is the mean over all samples."""
        return self.whole_loss(outputs, y) * (len(y) * self.loss_factor)

    def step(self, x, y):
        """Make one update with the samples of all ranks of this pipeline, and of the other
        pipelines; return the mean loss of all of them before it. Of the inputs ``x`` only the
        first, the samples, is used."""
        every = [None] * self.grid.pipe_parallel_size
        dist.all_gather_object(every, (x[0], y), group=self.grid.get_pipe_parallel_group())
        samples = len(y) * self.processes / self.weight
        self.loss_factor = self.processes / samples  # the engine takes means of micro-batches
        return self.model.train_batch(iter(every)).detach()

    @property
    def groups(self):
        """Ranks of each pipeline (``pipe``), and ranks that hold the same stage (``data``)."""
        return {"pipe": self.grid.pipe_groups, "data": self.grid.dp_groups}

    def gather_parameters(self, model):
        """Return all parameters by name, each broadcast by a rank with its stage; all ranks call
        it."""
        found = {}
        for name, p in model.canonical().items():
            stage = self.owners[name]
            found[name] = p.detach().clone() if p.numel() else p.new_empty(self.shapes[name])
            dist.broadcast(found[name], self.grid.topology().get_rank(pipe=stage, data=0))
        return found


def stage_by_parameter(module, layers, parameters):
    """Return parameter name → number of the stage, from 0, that has its layer, for the ``layers``
    of a PipelineModule; ``parameters`` are name → parameter."""
    names = {id(p): name for name, p in parameters.items()}
    bounds = list(zip(module.parts, module.parts[1:], strict=False))
    return {
        names[id(p)]: stage
        for stage, (start, stop) in enumerate(bounds)
        for layer in layers[start:stop]
        for p in layer.parameters()
    }


def check_supported(model, processes, stages):
    """Raise Unsupported if the number of processes is no multiple of the stages, or for a model
    with Dropout or shared parameters, which the engine would train differently."""
    if processes % stages:
        raise Unsupported(
            f"PipelineModule has {stages} stages here; {processes} ranks are no "
            f"multiple of it: set world_size = {stages} or {2 * stages}"
        )
    if model.spec.dropout_names:
        raise Unsupported(
            "PipelineModule passes samples alone on; this model takes the masks of its Dropout too"
        )
    if len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        raise Unsupported(
            "PipelineModule would train what layers share as parameters of each; "
            "leave the table untied (sizes.tied = false)"
        )
