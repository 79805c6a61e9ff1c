"""Bytes in PyTorch: of tensors, of what autograd keeps, and the peak of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch

from dualml_torch.optim.base import RuleOptimizer


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def state_bytes(optimizer: RuleOptimizer | None) -> int:
    """Of the tensors that the optimizer has at this moment."""
    slots = [] if optimizer is None else optimizer.state.values()
    kept = (t for named in slots for t in named.values() if torch.is_tensor(t))
    return nbytes(t.to_local() if hasattr(t, "to_local") else t for t in kept)


def memory_of(tensor: torch.Tensor) -> int:
    """Where its memory begins: the same for all that look at it."""
    return tensor.untyped_storage().data_ptr()


def keeping(
    sizes: dict[int, int], but: Collection[int]
) -> torch.autograd.graph.saved_tensors_hooks:
    """Inside, the memory of every tensor that autograd keeps is noted in ``sizes``.

    Args:
        sizes: where memory begins → its bytes.
        but: memory (`memory_of`) that does not count.
    """

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if (place := memory_of(tensor)) not in but:
            sizes[place] = tensor.untyped_storage().nbytes()
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)


def peak(device: torch.device, work: Callable[[], object]) -> int | None:
    """See `dualml.backend.Metered`; on a CPU PyTorch counts nothing."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)
