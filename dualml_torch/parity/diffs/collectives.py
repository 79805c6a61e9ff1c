"""Probes of collectives and data parallel training in PyTorch; every rank calls them, and rank 0's
answer is kept."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce as differentiable_all_reduce
from torch.nn.parallel import DistributedDataParallel

from dualml.parity.diffs.inputs import normal


def rank_tensor(rank: int, *shape: int) -> Tensor:
    """Return a float32 tensor of this shape of normal numbers, drawn with the seed ``rank``."""
    return torch.tensor(normal(*shape, seed=rank))


def gather_values(x: Tensor, size: int) -> NDArray:
    """Gather ``x`` from all ``size`` ranks, which all call this, and return an array (size, …) in
    rank order."""
    found = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(found, x)
    return torch.stack(found).numpy()


def gradient_reduction(rank: int, size: int) -> NDArray:
    """Run the probe "Gradients of several ranks" in PyTorch and return this rank's reduced gradient
    (1, 3). `DistributedDataParallel` averages them."""
    model = nn.Linear(3, 1, bias=False)
    parallel = DistributedDataParallel(model)  # unreferenced, its hooks would be removed
    parallel(rank_tensor(rank, 4, 3)).sum().backward()
    return model.weight.grad.numpy()


def initial_broadcast(rank: int, size: int) -> NDArray:
    """Run the probe "Parameters at the start" in PyTorch and return all ranks' weights (size, 1,
    3). `DistributedDataParallel` copies rank 0's to all ranks when it is made."""
    model = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(rank_tensor(rank, 1, 3))  # as if each rank had drawn its own
    DistributedDataParallel(model)
    return gather_values(model.weight.detach(), size)


def batchnorm_buffers(rank: int, size: int) -> NDArray:
    """Run the probe "Running statistics of BatchNorm" in PyTorch and return all ranks' running
    means (size, 3). `DistributedDataParallel` copies rank 0's to all ranks before each forward
    pass."""
    norm = nn.BatchNorm1d(3)
    model = DistributedDataParallel(norm)
    for step in range(2):
        model(rank_tensor(rank, 4 + step, 3))
    return gather_values(norm.running_mean, size)


def all_reduce_inplace(rank: int, size: int) -> NDArray:
    """Run the probe "Where the result of an all-reduce is" in PyTorch and return the argument after
    the call. `dist.all_reduce(x)` changes `x`."""
    x = rank_tensor(rank, 4)
    dist.all_reduce(x)
    return x.numpy()


def all_reduce_average_op(rank: int, size: int) -> NDArray:
    """Run the probe "An all-reduce that averages" in PyTorch and return its result. `ReduceOp.AVG`
    works with gloo."""
    x = rank_tensor(rank, 4)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    return x.numpy()


def all_reduce_gradient(rank: int, size: int) -> NDArray:
    """Run the probe "The gradient through an all-reduce" in PyTorch and return this rank's gradient
    (4,). `dist.all_reduce` is not differentiated: the gradient passes as if each rank were alone,
    with a warning."""
    x = rank_tensor(rank, 4).requires_grad_()
    y = x * 1
    dist.all_reduce(y)
    y.sum().backward()
    return x.grad.numpy()


def all_reduce_gradient_equal(rank: int, size: int) -> NDArray:
    """Run the probe "The gradient through an all-reduce" in PyTorch, written to agree with
    MindSpore, and return this rank's gradient (4,). PyTorch:
    `torch.distributed.nn.functional.all_reduce`."""
    x = rank_tensor(rank, 4).requires_grad_()
    differentiable_all_reduce(x).sum().backward()
    return x.grad.numpy()


def float64_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of float64" in PyTorch and return its result. Works with gloo."""
    x = rank_tensor(rank, 4).double()
    dist.all_reduce(x)
    return x.numpy()


def boolean_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a flag" in PyTorch and return the flag (1,) after the call. A
    boolean tensor works with gloo."""
    overflow = torch.tensor([rank == 0])
    dist.all_reduce(overflow, dist.ReduceOp.MAX)
    return overflow.numpy()


def boolean_all_reduce_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a flag" in PyTorch, written to agree with MindSpore, and return
    the flag (1,) after the call. Send the flag as int32 on both sides."""
    overflow = torch.tensor([rank == 0]).int()
    dist.all_reduce(overflow, dist.ReduceOp.MAX)
    return overflow.bool().numpy()


def noncontiguous_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a transposed tensor" in PyTorch and return the tensor (3, 2)
    after the call. The tensor holds the sum."""
    x = rank_tensor(rank, 2, 3).T
    dist.all_reduce(x)
    return x.numpy()


def all_reduce_view(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of one row" in PyTorch and return the whole tensor (2, 3) after the
    call. `dist.all_reduce(x[0])` adds up the first row of `x` and leaves the others."""
    x = rank_tensor(rank, 2, 3)
    dist.all_reduce(x[0])
    return x.numpy()


def all_gather_form(rank: int, size: int) -> NDArray:
    """Run the probe "What an all-gather gives" in PyTorch and return its result. `dist.all_gather`
    fills a list with one tensor for each rank."""
    found = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(found, rank_tensor(rank, 2, 3))
    return np.stack([x.numpy() for x in found])


def all_gather_form_equal(rank: int, size: int) -> NDArray:
    """Run the probe "What an all-gather gives" in PyTorch, written to agree with MindSpore, and
    return its result. PyTorch: `torch.cat` of the list; MindSpore: `mint.distributed.all_gather`
    fills a list too."""
    found = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(found, rank_tensor(rank, 2, 3))
    return torch.cat(found).numpy()


def reduce_scatter_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce-scatter on a CPU" in PyTorch and return this rank's part (3,). Works
    with gloo."""
    own = torch.empty(3)
    dist.reduce_scatter(own, list(rank_tensor(rank, size, 3)))
    return own.numpy()


def all_to_all_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "All-to-all on a CPU" in PyTorch and return the rows that this rank received,
    (size, 3). Works with gloo."""
    found = [torch.empty(3) for _ in range(size)]
    dist.all_to_all(found, list(rank_tensor(rank, size, 3)))
    return torch.stack(found).numpy()


def reduce_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce on a CPU" in PyTorch and return this rank's tensor after the call.
    Works with gloo."""
    x = rank_tensor(rank, 4)
    dist.reduce(x, dst=0)
    return x.numpy()


def message_tags(rank: int, size: int) -> NDArray:
    """Run the probe "Tags of messages" in PyTorch and return what was received for tags 1 and 2,
    (2, 2). `irecv(…, tag=2)` takes the message that was sent with tag 2, whatever came first."""
    first, second = torch.ones(2), torch.full((2,), 2.0)
    if rank == 1:
        works = [dist.isend(first, 0, tag=1), dist.isend(second, 0, tag=2)]
    else:
        first, second = torch.zeros(2), torch.zeros(2)
        works = [dist.irecv(second, 1, tag=2), dist.irecv(first, 1, tag=1)]
    for work in works:
        work.wait()
    return torch.stack([first, second]).numpy()
