"""PyTorch's groups of ranks and distributed tensors, as a recorder needs them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import distributed as dist

from dualml.common.errors import UserError
from dualml.parity.ranks.member import GroupAccess
from dualml.parity.ranks.shards import ShardPlace


def loaded_class(module: str, name: str) -> type[Any]:
    """Return a class of a module of PyTorch if that was imported, else `NoneType`: without it no
    object is of the class, and the import takes long."""
    found: type[Any] = getattr(sys.modules.get(module), name, type(None))
    return found


def is_distributed(tensor: Any) -> bool:
    """Return whether a tensor is a `DTensor`."""
    return tensor is not None and isinstance(
        tensor, loaded_class("torch.distributed.tensor", "DTensor")
    )


def join_group(group: Any) -> GroupAccess:
    """Return access to a process group, to the group of a device mesh of one axis, or, with True or
    a mesh of several axes, to all ranks.

    Raises:
        UserError: no group was initialised, ``group`` is none, or this process is not in it.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise UserError(
            "Recorder(group=…) needs a process group: call "
            "torch.distributed.init_process_group before it"
        )
    if isinstance(group, loaded_class("torch.distributed.device_mesh", "DeviceMesh")):
        group = group.get_group() if group.ndim == 1 else True
    if group is True:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise UserError(
            "group must be a torch.distributed process group, a device mesh, or True; received "
            f"{type(group).__name__}"
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise UserError("this process is not in the group that Recorder(group=…) received")
    return GroupAccess(rank, dist.get_world_size(group), partial(find_maximum, group))


def find_maximum(group: Any, value: int) -> int:
    """Return the largest of the integers ``value`` that the ranks of a group give; all of them must
    call this."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    number = torch.tensor([value], dtype=torch.int64, device=device)
    dist.all_reduce(number, dist.ReduceOp.MAX, group)
    return int(number)


def unwrap_model(model: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside of `DistributedDataParallel`; any other module itself."""
    wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
    inner: torch.nn.Module = model.module if wrapped else model
    return inner


def unwrap_optimizer(optimizer: Any) -> Any:
    """Return the optimizer of this rank's share inside of a `ZeroRedundancyOptimizer`, which has
    its state; any other one itself."""
    inner = getattr(optimizer, "optim", None)
    is_wrapper = type(optimizer).__name__ == "ZeroRedundancyOptimizer"
    return inner if is_wrapper and inner is not None else optimizer


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a distributed tensor, or any other tensor, detached from its
    graph; a result of a collective is waited for."""
    part: Any = tensor.detach()
    if is_distributed(part):
        part = part.to_local()
    # The result of a collective that is still under way.
    whole: torch.Tensor = part.wait() if hasattr(part, "trigger_wait") else part
    return whole


def shard_place(tensor: Any) -> ShardPlace | None:
    """Return the place of this rank's part in a distributed tensor; None for any other tensor."""
    if not is_distributed(tensor):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape = tuple(tensor.shape)
    _, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    terms = [
        tensor.device_mesh.size(axis) if placement.reduce_op == "sum" else 1
        for axis, placement in enumerate(tensor.placements)
        if placement.is_partial()
    ]
    offset = tuple(offset) if len(offset) == len(shape) else (0,) * len(shape)
    return ShardPlace(shape=shape, offset=offset, terms=prod(terms) if terms else 0)


def place_like(part: torch.Tensor, tensor: Any) -> torch.Tensor:
    """Return this rank's part as a tensor that is distributed like another one; the part itself
    if that is not distributed."""
    if not is_distributed(tensor):
        return part
    from torch.distributed.tensor import DTensor

    placed: torch.Tensor = DTensor.from_local(
        part,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
    return placed


class LocalGradients:
    """Hooks that report the gradients of each backward pass, before they are added up, clipped, or
    exchanged between ranks.

    `fully_shard` gives a module whole parameters while it computes; these get hooks when the module
    is called. Gradients of shards (tensor parallel) are not reported.

    Args:
        model: module whose parameters are hooked, until `remove`.
        note: called with the name of a parameter and its gradient, in every pass.
    """

    def __init__(self, model: torch.nn.Module, note: Callable[[str, torch.Tensor], None]) -> None:
        self.note = note
        self.handles: dict[int, Any] = {}
        for prefix, module in model.named_modules():
            self.hook_parameters(prefix, module)
            if any(map(is_distributed, module.parameters(recurse=False))):
                hook = partial(self.before_forward, prefix)
                self.handles[id(module)] = module.register_forward_pre_hook(hook)

    def before_forward(self, prefix: str, module: torch.nn.Module, given: Any) -> None:
        """Hook the whole parameters of a module that is called, of the dotted name ``prefix``;
        ``given`` are its inputs."""
        self.hook_parameters(prefix, module)

    def hook_parameters(self, prefix: str, module: torch.nn.Module) -> None:
        """Hook the module's own parameters that are trained and not distributed, each once."""
        for name, parameter in module.named_parameters(prefix, recurse=False):
            plain = parameter.requires_grad and not is_distributed(parameter)
            if plain and id(parameter) not in self.handles:
                hook = parameter.register_hook(partial(self.report, name))
                self.handles[id(parameter)] = hook

    def report(self, name: str, gradient: torch.Tensor) -> None:
        """Call `note` with the name of a parameter and its gradient; a hook of the parameter."""
        self.note(name, gradient)

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self.handles.values():
            handle.remove()
        self.handles.clear()
