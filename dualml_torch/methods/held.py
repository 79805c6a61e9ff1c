"""What a process of a method holds in memory, whatever engine its tensors belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from dualml.backend import Memory
from dualml.precision.scaling import HOPELESS
from dualml_torch.memory import keeping, memory_of, nbytes, state_bytes
from dualml_torch.methods.base import Base
from dualml_torch.optim import RuleOptimizer

Sizes = dict[int, int]  # where memory begins → its bytes


def memory(
    model: nn.Module,
    method: Base,
    optimizer: RuleOptimizer,
    update: Callable[[], bool] | None = None,
    samples: Sequence[Tensor] = (),
) -> Memory:
    """See `dualml.backend.Memory`. Copies of weights that the engine's optimizer updates in their
    place count as its state. What an engine keeps outside of PyTorch, as Horovod does, is not seen.

    Args:
        optimizer: the arm's own, inside of whatever the engine puts around it.
        update: makes one, and says whether it was made; without it there are no gradients.
        samples: that the update is made with.
    """
    own = {memory_of(part(t)) for t in (*model.parameters(), *model.buffers())}
    besides, kept, passes = Besides(model, method, own), Sizes(), [0]
    if update is not None:
        lasting = own | {memory_of(tensor) for tensor in samples}
        places = set(lasting)

        def forward(*_: Any) -> None:  # of another micro-batch, perhaps
            passes.append(sum(kept.values()))
            kept.clear()

        def look(*_: Any) -> None:  # where weights were that are given back, activations may be
            places.clear()
            places.update(lasting, besides.gather())

        handles = [
            model.register_forward_pre_hook(forward),
            *(m.register_forward_pre_hook(look) for m in model.modules()),
            *(m.register_forward_hook(look) for m in model.modules()),
            optimizer.register_step_pre_hook(lambda *_: besides.step(optimizer)),
        ]
        for _ in range(HOPELESS):  # a loss scale that is too large is halved
            with keeping(kept, places):
                if update():
                    break
        for handle in (*handles, *besides.handles.values()):
            handle.remove()
    copies = nbytes(p for p in updated(optimizer) if memory_of(local(p)) not in own)
    return Memory(
        weights=nbytes(map(part, model.parameters())),
        gradients=besides.gradients,
        state=state_bytes(optimizer) + copies,
        activations=None if update is None else max(*passes, sum(kept.values())),
        buckets=besides.most(),
    )


class Besides:
    """Gradients as the optimizer gets them, and what there is besides until then: weights that are
    collected for a forward pass, gradients that are sent away, and buffers to send them in.

    Args:
        own: where the memory of this process's weights begins.

    Attributes:
        gradients: bytes.
    """

    def __init__(self, model: nn.Module, method: Base, own: set[int]) -> None:
        self.model, self.method, self.own = model, method, own
        self.handles = dict[int, torch.utils.hooks.RemovableHandle]()
        self.weights = dict[int, nn.Parameter]()  # by identity
        #: Of each moment when a gradient is ready: buffers, and gradients by parameter.
        self.moments: list[tuple[Sizes, dict[int, Sizes]]] = []
        self.gradients, self.stepped = 0, set[int]()

    def gather(self) -> set[int]:
        """Around a layer's forward pass: where the memory of weights begins that were collected."""
        there = list(self.model.parameters())
        for p in there:
            if id(p) not in self.handles:
                self.handles[id(p)] = p.register_post_accumulate_grad_hook(self.ready)
        now = [p for p in there if p.numel() and memory_of(local(p)) not in self.own]
        self.weights |= {id(p): p for p in now}
        return set(map(memory_of, now))

    def ready(self, _: Tensor) -> None:
        weights = list(self.weights.values())
        parameters = (*self.model.parameters(), *weights)
        gradients = {id(p): sizes([local(p.grad)]) for p in parameters if p.grad is not None}
        there = [*weights, *buffers(self.method), *in_flight(self.model)]
        self.moments.append((sizes(there), gradients))

    def step(self, optimizer: RuleOptimizer) -> None:
        """Before the optimizer's step."""
        every = [p for p in (*self.model.parameters(), *updated(optimizer)) if p.grad is not None]
        views = {local(p.grad).data_ptr(): local(p.grad) for p in every}
        self.gradients, self.stepped = nbytes(views.values()), {id(p) for p in every}

    def most(self) -> int:
        """Bytes of what there was besides at once."""
        most = 0
        for there, gradients in self.moments:
            sent = [size for p, size in gradients.items() if p not in self.stepped]
            every = {place: n for each in (*sent, there) for place, n in each.items()}
            most = max(most, sum(every.values()))
        return most + ddp_buckets(self.method)


def sizes(tensors: Iterable[Tensor]) -> Sizes:
    """Of the memory behind some tensors, each piece once; 0 where it was given back."""
    return {memory_of(t): t.untyped_storage().nbytes() for t in tensors}


def buffers(method: Base) -> list[Tensor]:
    """In which DeepSpeed puts gradients together during the backward pass: a list of them, but of
    stage 3 one; there also where the sums lie until the optimizer steps."""
    buckets = getattr(method.optimizer, "ipg_buckets", {}).values()
    there = [b.buffer for b in buckets if b.buffer is not None]
    each = [t for some in there for t in ([some] if isinstance(some, Tensor) else some)]
    sums = getattr(method.optimizer, "grad_partitions_flat_buffer", None)
    return each if sums is None else [*each, sums]


def ddp_buckets(method: Base) -> int:
    """Bytes of the copies of gradients that DistributedDataParallel keeps."""
    model = getattr(method, "model", None)
    if not isinstance(model, DistributedDataParallel):
        return 0
    data = model._get_ddp_logging_data()
    listed = data.get("rebuilt_bucket_sizes") or data["bucket_sizes"]
    return sum(int(size) for size in listed.split(","))


def in_flight(model: nn.Module) -> Iterator[Tensor]:
    """Weights that FSDP collects for a group ahead of its turn, and the gradients of a group while
    they are sent."""
    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    for group in (group for state in states for group in state._fsdp_param_groups):
        if (ahead := group._all_gather_result) is not None:
            yield ahead.all_gather_output
        yield from (sent.reduce_scatter_input for sent in group.comm_ctx.reduce_scatter_states)


def part(tensor: Tensor) -> Tensor:
    """This rank's part of a weight: DeepSpeed's stage 3 empties the tensor itself."""
    shard: Tensor = tensor.ds_tensor if hasattr(tensor, "ds_tensor") else local(tensor)
    return shard


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that ranks share; any other as it is."""
    shard: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard


def updated(optimizer: RuleOptimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]
