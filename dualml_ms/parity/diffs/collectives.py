"""Probes of collectives and data parallel training in MindSpore; every rank calls them, and rank
0's answer is kept."""

from __future__ import annotations

import mindspore as ms
import mindspore.mint.distributed as md
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from dualml.parity.diffs.inputs import normal


def rank_tensor(rank: int, *shape: int) -> Tensor:
    """Return a float32 tensor of this shape of normal numbers, drawn with the seed ``rank``."""
    return Tensor(normal(*shape, seed=rank))


def gather_values(x: Tensor, size: int) -> NDArray:
    """Gather ``x`` from all ``size`` ranks, which all call this, and return an array (size, …) in
    rank order."""
    found = [ops.zeros_like(x) for _ in range(size)]
    md.all_gather(found, x)
    return np.stack([one.asnumpy() for one in found])


def gradient_reduction(rank: int, size: int) -> NDArray:
    """Run the probe "Gradients of several ranks" in MindSpore and return this rank's reduced
    gradient (1, 3). `nn.DistributedGradReducer` adds them up by default, so that the step grows
    with the number of ranks."""
    model = nn.Dense(3, 1, has_bias=False)
    reducer = nn.DistributedGradReducer(model.trainable_params())

    def loss(x: Tensor) -> Tensor:
        return model(x).sum()

    gradients = ms.grad(loss, None, model.trainable_params())(rank_tensor(rank, 4, 3))
    return reducer(gradients)[0].asnumpy()


def gradient_reduction_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Gradients of several ranks" in MindSpore, written to agree with PyTorch, and
    return this rank's reduced gradient (1, 3). MindSpore: `nn.DistributedGradReducer(params,
    mean=True, degree=n)`, or `gradients_mean=True` in the parallel context."""
    model = nn.Dense(3, 1, has_bias=False)
    reducer = nn.DistributedGradReducer(model.trainable_params(), mean=True, degree=size)

    def loss(x: Tensor) -> Tensor:
        return model(x).sum()

    gradients = ms.grad(loss, None, model.trainable_params())(rank_tensor(rank, 4, 3))
    return reducer(gradients)[0].asnumpy()


def initial_broadcast(rank: int, size: int) -> NDArray:
    """Run the probe "Parameters at the start" in MindSpore and return all ranks' weights (size, 1,
    3). Each rank keeps its own: reducing gradients does not make the parameters equal."""
    model = nn.Dense(3, 1, weight_init=rank_tensor(rank, 1, 3), has_bias=False)
    nn.DistributedGradReducer(model.trainable_params())
    return gather_values(model.weight, size)


def initial_broadcast_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Parameters at the start" in MindSpore, written to agree with PyTorch, and
    return all ranks' weights (size, 1, 3). MindSpore: the same seed on every rank, or
    `md.broadcast(parameter, src=0)` of each before training."""
    model = nn.Dense(3, 1, weight_init=rank_tensor(rank, 1, 3), has_bias=False)
    for parameter in model.get_parameters():
        md.broadcast(parameter, src=0)
    return gather_values(model.weight, size)


def batchnorm_buffers(rank: int, size: int) -> NDArray:
    """Run the probe "Running statistics of BatchNorm" in MindSpore and return all ranks' running
    means (size, 3). Each rank keeps its own."""
    norm = nn.BatchNorm1d(3).set_train()
    for step in range(2):
        norm(rank_tensor(rank, 4 + step, 3))
    return gather_values(norm.moving_mean, size)


def batchnorm_buffers_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Running statistics of BatchNorm" in MindSpore, written to agree with PyTorch,
    and return all ranks' running means (size, 3). MindSpore: `md.broadcast` of `moving_mean` and
    `moving_variance` before each step; PyTorch: `broadcast_buffers=False`."""
    norm = nn.BatchNorm1d(3).set_train()
    for step in range(2):
        for buffer in (norm.moving_mean, norm.moving_variance):
            md.broadcast(buffer, src=0)
        norm(rank_tensor(rank, 4 + step, 3))
    return gather_values(norm.moving_mean, size)


def all_reduce_inplace(rank: int, size: int) -> NDArray:
    """Run the probe "Where the result of an all-reduce is" in MindSpore and return the argument
    after the call. `ops.AllReduce()(x)` returns a new tensor and leaves `x` alone."""
    x = rank_tensor(rank, 4)
    ops.AllReduce()(x)
    return x.asnumpy()


def all_reduce_inplace_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Where the result of an all-reduce is" in MindSpore, written to agree with
    PyTorch, and return the argument after the call. MindSpore: use what it returns, or
    `mint.distributed.all_reduce(x)`, which changes `x`."""
    x = rank_tensor(rank, 4)
    md.all_reduce(x)
    return x.asnumpy()


def all_reduce_average_op(rank: int, size: int) -> NDArray:
    """Run the probe "An all-reduce that averages" in MindSpore, where it raises RuntimeError; else
    return its result. `ops.AllReduce` only adds on a CPU; any other operation raises an error."""
    return ops.AllReduce("avg")(rank_tensor(rank, 4)).asnumpy()


def all_reduce_average_op_equal(rank: int, size: int) -> NDArray:
    """Run the probe "An all-reduce that averages" in MindSpore, written to agree with PyTorch, and
    return its result. MindSpore: `mint.distributed.all_reduce(x, "avg")`, or divide the
    sum."""
    x = rank_tensor(rank, 4)
    md.all_reduce(x, "avg")
    return x.asnumpy()


def all_reduce_gradient(rank: int, size: int) -> NDArray:
    """Run the probe "The gradient through an all-reduce" in MindSpore and return this rank's
    gradient (4,). `ops.AllReduce` is differentiated: its gradient is the sum over all ranks."""
    all_reduce = ops.AllReduce()

    def loss(x: Tensor) -> Tensor:
        return all_reduce(x).sum()

    return ms.grad(loss)(rank_tensor(rank, 4)).asnumpy()


def float64_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of float64" in MindSpore, where it raises RuntimeError; else return
    its result. `mint.distributed.all_reduce` raises an error on a CPU."""
    x = rank_tensor(rank, 4).double()
    md.all_reduce(x)
    return x.asnumpy()


def float64_all_reduce_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of float64" in MindSpore, written to agree with PyTorch, and return
    its result. MindSpore: `all_gather`, which carries float64, and add up what it gives."""
    x = rank_tensor(rank, 4).double()
    found = [ops.zeros_like(x) for _ in range(size)]
    md.all_gather(found, x)
    return sum(found[1:], found[0]).asnumpy()


def boolean_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a flag" in MindSpore, where it raises RuntimeError; else return
    the flag (1,) after the call. `mint.distributed.all_reduce` raises an error on a CPU."""
    overflow = Tensor([rank == 0])
    md.all_reduce(overflow, "max")
    return overflow.asnumpy()


def boolean_all_reduce_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a flag" in MindSpore, written to agree with PyTorch, and return
    the flag (1,) after the call. Send the flag as int32 on both sides."""
    overflow = Tensor([rank == 0]).int()
    md.all_reduce(overflow, "max")
    return overflow.bool().asnumpy()


def noncontiguous_all_reduce(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a transposed tensor" in MindSpore and return the tensor (3, 2)
    after the call. On a CPU `mint.distributed.all_reduce` leaves a tensor that is not contiguous
    unchanged, without an error."""
    x = rank_tensor(rank, 2, 3).T
    md.all_reduce(x)
    return x.asnumpy()


def noncontiguous_all_reduce_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of a transposed tensor" in MindSpore, written to agree with
    PyTorch, and return the tensor (3, 2) after the call. MindSpore: `x = x.contiguous()` first."""
    x = rank_tensor(rank, 2, 3).T.contiguous()
    md.all_reduce(x)
    return x.asnumpy()


def all_reduce_view(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of one row" in MindSpore and return the whole tensor (2, 3) after
    the call. On a CPU `mint.distributed.all_reduce(x[0])` adds up all rows of `x`."""
    x = rank_tensor(rank, 2, 3)
    md.all_reduce(x[0])
    return x.asnumpy()


def all_reduce_view_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-reduce of one row" in MindSpore, written to agree with PyTorch, and return
    the whole tensor (2, 3) after the call. MindSpore: reduce a copy, `row = x[0].copy()`, and
    assign it, `x[0] = row`."""
    x = rank_tensor(rank, 2, 3)
    row = x[0].copy()
    md.all_reduce(row)
    x[0] = row
    return x.asnumpy()


def all_gather_form(rank: int, size: int) -> NDArray:
    """Run the probe "What an all-gather gives" in MindSpore and return its result. `ops.AllGather`
    joins them along the first dimension."""
    return ops.AllGather()(rank_tensor(rank, 2, 3)).asnumpy()


def reduce_scatter_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce-scatter on a CPU" in MindSpore, where it raises RuntimeError; else
    return this rank's part (3,). Has no kernel and raises an error."""
    own = ops.zeros(3)
    md.reduce_scatter(own, list(rank_tensor(rank, size, 3)))
    return own.asnumpy()


def reduce_scatter_cpu_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce-scatter on a CPU" in MindSpore, written to agree with PyTorch, and
    return this rank's part (3,). MindSpore: `all_reduce`, and take the rank's part."""
    parts = rank_tensor(rank, size, 3)
    md.all_reduce(parts)
    return parts[rank].asnumpy()


def all_to_all_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "All-to-all on a CPU" in MindSpore, where it raises RuntimeError; else return
    the rows that this rank received, (size, 3). Has no kernel and raises an error."""
    found = [ops.zeros(3) for _ in range(size)]
    md.all_to_all(found, list(rank_tensor(rank, size, 3)))
    return np.stack([x.asnumpy() for x in found])


def all_to_all_cpu_equal(rank: int, size: int) -> NDArray:
    """Run the probe "All-to-all on a CPU" in MindSpore, written to agree with PyTorch, and return
    the rows that this rank received, (size, 3). MindSpore: `all_gather`, and take the rank's part
    of each."""
    found = [ops.zeros((size, 3)) for _ in range(size)]
    md.all_gather(found, rank_tensor(rank, size, 3))
    return np.stack([parts[rank].asnumpy() for parts in found])


def reduce_cpu(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce on a CPU" in MindSpore, where it raises RuntimeError; else return this
    rank's tensor after the call. Has no kernel and raises an error."""
    x = rank_tensor(rank, 4)
    md.reduce(x, dst=0)
    return x.asnumpy()


def reduce_cpu_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Reduce on a CPU" in MindSpore, written to agree with PyTorch, and return this
    rank's tensor after the call. MindSpore: `all_reduce`, which gives every rank the sum."""
    x = rank_tensor(rank, 4)
    md.all_reduce(x)
    return x.asnumpy()


def message_tags(rank: int, size: int) -> NDArray:
    """Run the probe "Tags of messages" in MindSpore and return what was received for tags 1 and 2,
    (2, 2). Tags are ignored: messages of a pair of ranks arrive in the order in which they were
    sent."""
    first, second = ops.ones(2), ops.full((2,), 2.0, dtype=ms.float32)
    if rank == 1:
        works = [md.isend(first, 0, tag=1), md.isend(second, 0, tag=2)]
    else:
        first, second = ops.zeros(2), ops.zeros(2)
        works = [md.irecv(second, 1, tag=2), md.irecv(first, 1, tag=1)]
    for work in works:
        work.wait()
    return ops.stack([first, second]).asnumpy()


def message_tags_equal(rank: int, size: int) -> NDArray:
    """Run the probe "Tags of messages" in MindSpore, written to agree with PyTorch: rank 1 sends
    two messages without tags, rank 0 returns them in that order, (2, 2). MindSpore: receive in the
    order of sending."""
    first, second = ops.ones(2), ops.full((2,), 2.0, dtype=ms.float32)
    if rank == 1:
        works = [md.isend(first, 0), md.isend(second, 0)]
    else:
        first, second = ops.zeros(2), ops.zeros(2)
        works = [md.irecv(first, 1), md.irecv(second, 1)]
    for work in works:
        work.wait()
    return ops.stack([first, second]).asnumpy()
