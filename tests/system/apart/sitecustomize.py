"""Plant separate training into the workers of a run whose ``PYTHONPATH`` begins with this folder.

``DUALML_TEST_APART`` names the plants. Each patches a module when a worker imports it, so that an
exchange no longer happens while everything else continues.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

PLANTS: dict[str, tuple[str, Callable[[Any], None]]] = {}


def plant(name: str, module: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function that patches a module."""

    def register(lay: Callable[[Any], None]) -> Callable[[Any], None]:
        PLANTS[name] = module, lay
        return lay

    return register


@plant("nothing", "dualml.parallel.aggregation.parallel")
def _no_gradient_sum(module: Any) -> None:
    """No rank sends its gradient."""
    module.DataParallel.reduce_bucket = lambda self, x, bucket: x


@plant("a-part", "dualml.parallel.aggregation.parallel")
def _partial_gradient_sum(module: Any) -> None:
    """The last eighth of each bucket is left out of the exchange."""
    sums = module.DataParallel.reduce_bucket

    def sum_most(self: Any, x: Any, bucket: str) -> Any:
        comm, end = self.comm, len(x) - len(x) // 8
        own = comm.copy(comm.slice(x, end, len(x)))
        total = sums(self, comm.copy(comm.slice(x, 0, end)), bucket)
        return comm.write(comm.write(x, 0, total, "put"), end, own, "put")

    module.DataParallel.reduce_bucket = sum_most


@plant("short", "dualml.parallel.aggregation.parallel")
def _half_of_the_bytes(module: Any) -> None:
    """The gradient is sent as float16 by an arm that does not say so."""
    from dualml.parallel.aggregation.compress import sum_fp16

    module.DataParallel.reduce_bucket = lambda self, x, bucket: sum_fp16(
        self.strategy, self.comm, x
    )


@plant("later", "dualml.parallel.aggregation.parallel")
def _only_first_update(module: Any) -> None:
    """Only the first update is synchronised."""
    sums = module.DataParallel.reduce_bucket
    module.DataParallel.reduce_bucket = lambda self, x, bucket: (
        x if self.step_count > 1 else sums(self, x, bucket)
    )


@plant("averages", "dualml.parallel.aggregation.local_sgd")
def _averages(module: Any) -> None:
    """Parameters are never averaged, but the averaging is recorded."""

    def average(self: Any) -> None:
        own = [self.comm.numpy(p) for p in self.buckets.parameters()]
        self.record_divergence(own, own)

    module.LocalSGD.average_parameters = average


@plant("server", "dualml.parallel.aggregation.asynchronous")
def _server(module: Any) -> None:
    """Workers keep to themselves what they should send to the server."""
    handle_push = module.AsyncParameterServer.handle_push
    module.AsyncParameterServer.handle_push = lambda self, rank, step, own=(): (
        None if rank else handle_push(self, rank, step, own)
    )
    module.AsyncParameterServer.push_gradient = lambda self, gradients: self.buckets.update(
        gradients, self.step_count
    )


@plant("shards", "dualml.parallel.zero.collectives")
def _shards(module: Any) -> None:
    """Each rank updates its shard with its own gradient; weights are still gathered, and so
    equal."""
    module.ShardCollectives.reduce_scatter = lambda self, vector: self.local_part(vector)


@plant("slices", "dualml.parallel.split.tensor_parallel_rank")
def _slices(module: Any) -> None:
    """Ranks that share every layer do not sum their parts."""
    module.TensorParallelRank.all_reduce_sum = lambda self, group, x: x


@plant("stages", "dualml.parallel.split.mailbox")
def _stages(module: Any) -> None:
    """Nothing passes between stages: each computes with zeros instead."""

    import numpy as np

    class Deaf(module.Mailbox):
        def __init__(self, comm: Any, incoming: Any, empty: Any) -> None:
            super().__init__(comm, {}, empty)
            every = [one for messages in incoming.values() for one in messages]
            self.sizes = {key: size for key, *size in every}

        def send(self, key: Any, x: Any, peer: int) -> None:
            if peer == self.comm.rank:
                super().send(key, x, peer)

        def receive(self, key: Any, peer: int) -> Any:
            if key in self.received:
                return self.received.pop(key)
            buffer = self.make_buffer(*self.sizes[key])
            return self.comm.tensor(np.zeros(tuple(buffer.shape), self.comm.dtype(buffer)))

    module.Mailbox = Deaf  # before the executor imports it


@plant("calls", "dualml_torch.parallel.rpc")
def _calls(module: Any) -> None:
    """The driver runs every stage itself and calls no other rank."""
    module.worker_name = lambda rank: str(module.rpc.get_worker_info().name)


@plant("engine-torch", "torch.nn.parallel.distributed")
def _engine_torch(module: Any) -> None:
    """DistributedDataParallel never synchronises, as inside a forgotten ``no_sync``."""
    forward = module.DistributedDataParallel.forward

    def forward_unsynced(self: Any, *inputs: Any, **more: Any) -> Any:
        self.require_backward_grad_sync = False
        return forward(self, *inputs, **more)

    module.DistributedDataParallel.forward = forward_unsynced


@plant("engine-mindspore", "mindspore.nn.wrap.grad_reducer")
def _engine_mindspore(module: Any) -> None:
    """DistributedGradReducer returns its input."""

    def construct(self, grads):  # type: ignore[no-untyped-def] # compiled from its source
        return grads

    module.DistributedGradReducer.construct = construct


class Layer(importlib.abc.MetaPathFinder):
    """An import finder that patches a module after it was executed."""

    def __init__(self, chosen: dict[str, list[Callable[[Any], None]]]) -> None:
        self.chosen = chosen

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.chosen:
            return None
        lays = self.chosen.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            for lay in lays:
                lay(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


asked: dict[str, list[Callable[[Any], None]]] = {}
for word in os.environ.get("DUALML_TEST_APART", "").split():
    asked.setdefault(PLANTS[word][0], []).append(PLANTS[word][1])
sys.meta_path.insert(0, Layer(asked))
