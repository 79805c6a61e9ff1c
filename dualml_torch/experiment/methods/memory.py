"""Memory of one process of a method, whatever engine its tensors belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES
from dualml.backend import MemoryUsage
from dualml_torch.algorithms.memory import (
    nbytes,
    record_saved_tensors,
    state_bytes,
    storage_address,
)
from dualml_torch.algorithms.optim import RuleOptimizer
from dualml_torch.experiment.methods.base import TrainingMethod

Sizes = dict[int, int]  # storage address → bytes


def measure_engine_memory(
    model: nn.Module,
    method: TrainingMethod,
    optimizer: RuleOptimizer,
    update: Callable[[], bool] | None = None,
    samples: Sequence[Tensor] = (),
) -> MemoryUsage:
    """Measure the memory of this process, see `dualml.backend.MemoryUsage`.

    Copies of weights that the engine's optimizer updates in their place count as state. Memory that
    an engine holds outside of PyTorch, as Horovod does, is not visible.

    Args:
        optimizer: the arm's own, inside of any wrappers of the engine.
        update: makes an update and returns whether it was applied; called until it was, at most
            `MAX_SKIPPED_UPDATES` times. Without it there are no gradients and activations.
        samples: inputs of the update, which do not count.
    """
    own = {storage_address(weight_shard(t)) for t in (*model.parameters(), *model.buffers())}
    besides, kept, passes = TransientMemory(model, method, own), Sizes(), [0]
    if update is not None:
        lasting = own | {storage_address(tensor) for tensor in samples}
        places = set(lasting)

        def on_forward(*_: Any) -> None:  # perhaps another micro-batch
            passes.append(sum(kept.values()))
            kept.clear()

        def update_weight_storage(*_: Any) -> None:  # freed weights' storage may be reused
            places.clear()
            places.update(lasting, besides.collect_weights())

        handles = [
            model.register_forward_pre_hook(on_forward),
            *(m.register_forward_pre_hook(update_weight_storage) for m in model.modules()),
            *(m.register_forward_hook(update_weight_storage) for m in model.modules()),
            optimizer.register_step_pre_hook(lambda *_: besides.before_step(optimizer)),
        ]
        for _ in range(MAX_SKIPPED_UPDATES):  # too large a loss scale is halved
            with record_saved_tensors(kept, places):
                if update():
                    break
        for handle in (*handles, *besides.handles.values()):
            handle.remove()
    copies = nbytes(
        p for p in optimizer_parameters(optimizer) if storage_address(local_shard(p)) not in own
    )
    return MemoryUsage(
        weights=nbytes(map(weight_shard, model.parameters())),
        gradients=besides.gradients,
        state=state_bytes(optimizer) + copies,
        activations=None if update is None else max(*passes, sum(kept.values())),
        buckets=besides.peak_bytes(),
    )


class TransientMemory:
    """Tracks gradients as the optimizer gets them, and transient memory until then: gathered
    weights, gradients that are sent away, and communication buffers.

    Args:
        own: storage addresses of this process's weights.

    Attributes:
        gradients: bytes.
    """

    def __init__(self, model: nn.Module, method: TrainingMethod, own: set[int]) -> None:
        self.model, self.method, self.weight_storage = model, method, own
        self.handles = dict[int, torch.utils.hooks.RemovableHandle]()
        self.weights = dict[int, nn.Parameter]()  # by identity
        #: At each moment when a gradient was ready: buffers, and gradients by parameter.
        self.moments: list[tuple[Sizes, dict[int, Sizes]]] = []
        self.gradients, self.stepped = 0, set[int]()

    def collect_weights(self) -> set[int]:
        """Return the storage addresses of weights outside of this process's own storage, gathered
        ones, and watch for the gradients of new parameters; called around each layer's forward
        pass."""
        there = list(self.model.parameters())
        for p in there:
            if id(p) not in self.handles:
                self.handles[id(p)] = p.register_post_accumulate_grad_hook(self.on_gradient_ready)
        now = [
            p
            for p in there
            if p.numel() and storage_address(local_shard(p)) not in self.weight_storage
        ]
        self.weights |= {id(p): p for p in now}
        return set(map(storage_address, now))

    def on_gradient_ready(self, _: Tensor) -> None:
        """Record the storages of buffers and of all gradients at the moment when a gradient is
        ready; a hook of the parameters."""
        weights = list(self.weights.values())
        parameters = (*self.model.parameters(), *weights)
        gradients = {
            id(p): storage_sizes([local_shard(p.grad)]) for p in parameters if p.grad is not None
        }
        there = [*weights, *deepspeed_buffers(self.method), *fsdp_in_flight(self.model)]
        self.moments.append((storage_sizes(there), gradients))

    def before_step(self, optimizer: RuleOptimizer) -> None:
        """Set `gradients` to the bytes of the gradients that the optimizer is about to use, each
        once; the parameters that have one are noted for `peak_bytes`."""
        every = [
            p
            for p in (*self.model.parameters(), *optimizer_parameters(optimizer))
            if p.grad is not None
        ]
        views = {local_shard(p.grad).data_ptr(): local_shard(p.grad) for p in every}
        self.gradients, self.stepped = nbytes(views.values()), {id(p) for p in every}

    def peak_bytes(self) -> int:
        """Return the most bytes of transient memory at any recorded moment, without gradients that
        the optimizer itself got, plus DDP's buckets."""
        most = 0
        for there, gradients in self.moments:
            sent = [size for p, size in gradients.items() if p not in self.stepped]
            every = {place: n for each in (*sent, there) for place, n in each.items()}
            most = max(most, sum(every.values()))
        return most + ddp_buckets(self.method)


def storage_sizes(tensors: Iterable[Tensor]) -> Sizes:
    """Return storage address → bytes of the whole storage, 0 for a freed one, of some tensors."""
    return {storage_address(t): t.untyped_storage().nbytes() for t in tensors}


def deepspeed_buffers(method: TrainingMethod) -> list[Tensor]:
    """Return the tensors in which DeepSpeed collects gradients during the backward pass, and those
    that keep the sums until the optimizer steps; none for other engines."""
    buckets = getattr(method.optimizer, "ipg_buckets", {}).values()
    there = [b.buffer for b in buckets if b.buffer is not None]
    each = [t for some in there for t in ([some] if isinstance(some, Tensor) else some)]
    sums = getattr(method.optimizer, "grad_partitions_flat_buffer", None)
    return each if sums is None else [*each, sums]


def ddp_buckets(method: TrainingMethod) -> int:
    """Return the bytes of DistributedDataParallel's gradient buckets, 0 without it."""
    model = getattr(method, "model", None)
    if not isinstance(model, DistributedDataParallel):
        return 0
    data = model._get_ddp_logging_data()
    listed = data.get("rebuilt_bucket_sizes") or data["bucket_sizes"]
    return sum(int(size) for size in listed.split(","))


def fsdp_in_flight(model: nn.Module) -> Iterator[Tensor]:
    """Yield the weights that FSDP has gathered ahead of their turn, and the gradients that are
    being reduced, these once per group of parameters; nothing for a model without FSDP."""
    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    for group in (group for state in states for group in state._fsdp_param_groups):
        if (ahead := group._all_gather_result) is not None:
            yield ahead.all_gather_output
        yield from (sent.reduce_scatter_input for sent in group.comm_ctx.reduce_scatter_states)


def weight_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a weight: of a DTensor its local tensor, of a parameter that
    DeepSpeed's stage 3 has emptied its part, else the weight itself."""
    shard: Tensor = tensor.ds_tensor if hasattr(tensor, "ds_tensor") else local_shard(tensor)
    return shard


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor; any other tensor unchanged."""
    shard: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def optimizer_parameters(optimizer: RuleOptimizer) -> list[Any]:
    """Return the parameters that an optimizer updates."""
    return [p for group in optimizer.param_groups for p in group["params"]]
