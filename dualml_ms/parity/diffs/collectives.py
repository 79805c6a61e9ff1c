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
    """Return normal numbers that differ between ranks."""
    return Tensor(normal(*shape, seed=rank))


def gather_values(x: Tensor, size: int) -> NDArray:
    """Return the values of a tensor on all ranks, stacked."""
    found = [ops.zeros_like(x) for _ in range(size)]
    md.all_gather(found, x)
    return np.stack([one.asnumpy() for one in found])


def gradient_reduction(rank: int, size: int) -> NDArray:
    model = nn.Dense(3, 1, has_bias=False)
    reducer = nn.DistributedGradReducer(model.trainable_params())

    def loss(x: Tensor) -> Tensor:
        return model(x).sum()

    gradients = ms.grad(loss, None, model.trainable_params())(rank_tensor(rank, 4, 3))
    return reducer(gradients)[0].asnumpy()


def gradient_reduction_equal(rank: int, size: int) -> NDArray:
    model = nn.Dense(3, 1, has_bias=False)
    reducer = nn.DistributedGradReducer(model.trainable_params(), mean=True, degree=size)

    def loss(x: Tensor) -> Tensor:
        return model(x).sum()

    gradients = ms.grad(loss, None, model.trainable_params())(rank_tensor(rank, 4, 3))
    return reducer(gradients)[0].asnumpy()


def initial_broadcast(rank: int, size: int) -> NDArray:
    model = nn.Dense(3, 1, weight_init=rank_tensor(rank, 1, 3), has_bias=False)
    nn.DistributedGradReducer(model.trainable_params())
    return gather_values(model.weight, size)


def initial_broadcast_equal(rank: int, size: int) -> NDArray:
    model = nn.Dense(3, 1, weight_init=rank_tensor(rank, 1, 3), has_bias=False)
    for parameter in model.get_parameters():
        md.broadcast(parameter, src=0)
    return gather_values(model.weight, size)


def batchnorm_buffers(rank: int, size: int) -> NDArray:
    norm = nn.BatchNorm1d(3).set_train()
    for step in range(2):
        norm(rank_tensor(rank, 4 + step, 3))
    return gather_values(norm.moving_mean, size)


def batchnorm_buffers_equal(rank: int, size: int) -> NDArray:
    norm = nn.BatchNorm1d(3).set_train()
    for step in range(2):
        for buffer in (norm.moving_mean, norm.moving_variance):
            md.broadcast(buffer, src=0)
        norm(rank_tensor(rank, 4 + step, 3))
    return gather_values(norm.moving_mean, size)


def all_reduce_inplace(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4)
    ops.AllReduce()(x)
    return x.asnumpy()


def all_reduce_inplace_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4)
    md.all_reduce(x)
    return x.asnumpy()


def all_reduce_average_op(rank: int, size: int) -> NDArray:
    return ops.AllReduce("avg")(rank_tensor(rank, 4)).asnumpy()


def all_reduce_average_op_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4)
    md.all_reduce(x, "avg")
    return x.asnumpy()


def all_reduce_gradient(rank: int, size: int) -> NDArray:
    all_reduce = ops.AllReduce()

    def loss(x: Tensor) -> Tensor:
        return all_reduce(x).sum()

    return ms.grad(loss)(rank_tensor(rank, 4)).asnumpy()


def float64_all_reduce(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4).double()
    md.all_reduce(x)
    return x.asnumpy()


def float64_all_reduce_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4).double()
    found = [ops.zeros_like(x) for _ in range(size)]
    md.all_gather(found, x)
    return sum(found[1:], found[0]).asnumpy()


def boolean_all_reduce(rank: int, size: int) -> NDArray:
    overflow = Tensor([rank == 0])
    md.all_reduce(overflow, "max")
    return overflow.asnumpy()


def boolean_all_reduce_equal(rank: int, size: int) -> NDArray:
    overflow = Tensor([rank == 0]).int()
    md.all_reduce(overflow, "max")
    return overflow.bool().asnumpy()


def noncontiguous_all_reduce(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 2, 3).T
    md.all_reduce(x)
    return x.asnumpy()


def noncontiguous_all_reduce_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 2, 3).T.contiguous()
    md.all_reduce(x)
    return x.asnumpy()


def all_reduce_view(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 2, 3)
    md.all_reduce(x[0])
    return x.asnumpy()


def all_reduce_view_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 2, 3)
    row = x[0].copy()
    md.all_reduce(row)
    x[0] = row
    return x.asnumpy()


def all_gather_form(rank: int, size: int) -> NDArray:
    return ops.AllGather()(rank_tensor(rank, 2, 3)).asnumpy()


def reduce_scatter_cpu(rank: int, size: int) -> NDArray:
    own = ops.zeros(3)
    md.reduce_scatter(own, list(rank_tensor(rank, size, 3)))
    return own.asnumpy()


def reduce_scatter_cpu_equal(rank: int, size: int) -> NDArray:
    parts = rank_tensor(rank, size, 3)
    md.all_reduce(parts)
    return parts[rank].asnumpy()


def all_to_all_cpu(rank: int, size: int) -> NDArray:
    found = [ops.zeros(3) for _ in range(size)]
    md.all_to_all(found, list(rank_tensor(rank, size, 3)))
    return np.stack([x.asnumpy() for x in found])


def all_to_all_cpu_equal(rank: int, size: int) -> NDArray:
    found = [ops.zeros((size, 3)) for _ in range(size)]
    md.all_gather(found, rank_tensor(rank, size, 3))
    return np.stack([parts[rank].asnumpy() for parts in found])


def reduce_cpu(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4)
    md.reduce(x, dst=0)
    return x.asnumpy()


def reduce_cpu_equal(rank: int, size: int) -> NDArray:
    x = rank_tensor(rank, 4)
    md.all_reduce(x)
    return x.asnumpy()


def message_tags(rank: int, size: int) -> NDArray:
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
    first, second = ops.ones(2), ops.full((2,), 2.0, dtype=ms.float32)
    if rank == 1:
        works = [md.isend(first, 0), md.isend(second, 0)]
    else:
        first, second = ops.zeros(2), ops.zeros(2)
        works = [md.irecv(first, 1), md.irecv(second, 1)]
    for work in works:
        work.wait()
    return ops.stack([first, second]).asnumpy()
