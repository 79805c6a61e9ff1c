"""Bytes in PyTorch: of tensors, of activations that autograd saves, and the peak of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch

from dualml_torch.algorithms.optim.base import RuleOptimizer


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Return the total bytes of some tensors; None counts as 0."""
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def state_bytes(optimizer: RuleOptimizer | None) -> int:
    """Return the bytes of the tensors in the optimizer's current state, of a DTensor those of this
    rank's shard; 0 for None and before the first update."""
    slots = [] if optimizer is None else optimizer.state.values()
    kept = (t for named in slots for t in named.values() if torch.is_tensor(t))
    return nbytes(t.to_local() if hasattr(t, "to_local") else t for t in kept)


def storage_address(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor is stored in, which its views share."""
    return tensor.untyped_storage().data_ptr()


def record_saved_tensors(
    sizes: dict[int, int], excluded: Collection[int]
) -> torch.autograd.graph.saved_tensors_hooks:
    """Return a context manager that records in ``sizes`` the storage of every tensor that autograd
    saves inside its block.

    Args:
        sizes: storage address → bytes of the whole storage, filled in place.
        excluded: storage addresses (`storage_address`) that do not count.
    """

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if (place := storage_address(tensor)) not in excluded:
            sizes[place] = tensor.untyped_storage().nbytes()
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)


def measure_peak_memory(device: torch.device, work: Callable[[], object]) -> int | None:
    """Run ``work`` and return the peak bytes of PyTorch's tensors on a GPU meanwhile, those
    allocated before included; None, without running it, on a CPU, where PyTorch counts nothing."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)
