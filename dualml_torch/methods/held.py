"""What a process of a method holds in memory, whatever engine its tensors belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
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
    own = {memory_of(local(t)) for t in (*model.parameters(), *model.buffers())}
    besides, kept, passes = Besides(model, method, own), Sizes(), [0]
    if update is not None:
        places = own | {memory_of(tensor) for tensor in samples}

        def forward(*_: Any) -> None:  # of another micro-batch, perhaps
            places.update(besides.gather())
            passes.append(sum(kept.values()))
            kept.clear()

        handles = [
            model.register_forward_pre_hook(forward),
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
        weights=nbytes(map(local, model.parameters())),
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
        self.weights = list[nn.Parameter]()
        #: Of each moment when a gradient is ready: buffers, and gradients by parameter.
        self.moments: list[tuple[Sizes, dict[int, Sizes]]] = []
        self.gradients, self.stepped = 0, set[int]()

    def gather(self) -> set[int]:
        """Before a forward pass: where the memory of weights begins that were collected for it."""
        there = list(self.model.parameters())
        for p in there:
            if id(p) not in self.handles:
                self.handles[id(p)] = p.register_post_accumulate_grad_hook(self.ready)
        self.weights = [p for p in there if memory_of(local(p)) not in self.own]
        return {memory_of(p) for p in self.weights}

    def ready(self, _: Tensor) -> None:
        parameters = (*self.model.parameters(), *self.weights)
        gradients = {id(p): sizes([local(p.grad)]) for p in parameters if p.grad is not None}
        self.moments.append((sizes([*self.weights, *buffers(self.method)]), gradients))

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
    """In which DeepSpeed puts gradients together during the backward pass."""
    buckets = getattr(method.optimizer, "ipg_buckets", {})
    return [tensor for bucket in buckets.values() for tensor in bucket.buffer]


def ddp_buckets(method: Base) -> int:
    """Bytes of the copies of gradients that DistributedDataParallel keeps."""
    model = getattr(method, "model", None)
    if not isinstance(model, DistributedDataParallel):
        return 0
    data = model._get_ddp_logging_data()
    listed = data.get("rebuilt_bucket_sizes") or data["bucket_sizes"]
    return sum(int(size) for size in listed.split(","))


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that ranks share; any other as it is."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def updated(optimizer: RuleOptimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]
