"""Sharded training in PyTorch, dualml's and engines'; sharding.py starts it on each rank."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from collectives_torch import reset_scheduling
from nets_torch import GPT
from ranks import paced
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import Adam
from dualml.backend import TrainingSpec
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.zero import Sharding
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.parallel import ZeroDataParallel
from dualml_torch.algorithms.gloo import use_batch_scheduling
from dualml_torch.backend import TorchBackend

#: Vocabulary size and tokens per sample; samples per update and rank; updates per round.
WORDS, LENGTH, BATCH, STEPS, SAMPLES = 2000, 64, 4, 4, 512
WIDTH, BLOCKS, HEADS = 128, 4, 4
RATE = 1e-3


def samples() -> tuple[Any, Any]:
    """Return random tokens, and the next token of each."""
    drawn = np.random.default_rng(0).integers(0, WORDS, (SAMPLES, LENGTH + 1))
    return drawn[:, :-1].astype(np.int32), drawn[:, 1:].astype(np.int64)


class Batches:
    """Random global batches, the same on every rank, of which each rank takes its part."""

    def __init__(self, ranks: int) -> None:
        self.draw, self.ranks = np.random.default_rng(1), ranks

    def __call__(self) -> list[Any]:
        return np.array_split(self.draw.integers(0, SAMPLES, BATCH * self.ranks), self.ranks)


class ZeroUpdates:
    """Updates as a trial makes them, with losses read together."""

    def __init__(self, comm: Any, stage: int, **more: Any) -> None:
        sizes = {"width": WIDTH, "blocks": BLOCKS, "heads": HEADS, "tied": False}
        spec = model("gpt", words=WORDS, length=LENGTH, sizes=sizes)
        x, y = samples()
        recipe = TrainingSpec(
            spec=spec, weights=initial_weights(spec, 0), rule=Adam(lr=RATE), x=x, y=y, updates=1
        )
        backend = TorchBackend("cpu", 1)
        sharded = ShardedModel(backend, recipe, comm, Sharding(stage, **more))
        self.training = ZeroDataParallel(backend, sharded, comm, Aggregation())
        self.training.load(recipe.weights, recipe.initial_state(), 0)
        self.batches, self.step = Batches(comm.size), 0

    def __call__(self) -> None:
        lazy = []
        for _ in range(STEPS):
            self.step += 1
            lazy.append(self.training.step(self.batches(), self.step))
        self.training.mean_losses(lazy)


class ByHand:
    """A loop around an engine: samples in memory, losses read at the end of a round.

    Args:
        make: function (loop, model) → the callable to train, and the optimizer.
    """

    def __init__(self, comm: Any, make: Callable[..., Any], **how: Any) -> None:
        self.x, self.y = map(torch.from_numpy, samples())
        self.batches, self.rank = Batches(comm.size), comm.rank
        torch.manual_seed(0)  # the same initial weights on every rank
        self.net, self.optimizer = make(GPT(WORDS, LENGTH, WIDTH, BLOCKS, HEADS), **how)

    def __call__(self) -> None:
        # What a trial sets for its process is neither this loop's cost nor its gain.
        torch.use_deterministic_algorithms(False)
        reset_scheduling()
        losses = []
        for _ in range(STEPS):
            index = torch.from_numpy(self.batches()[self.rank])
            x, y = self.x.index_select(0, index), self.y.index_select(0, index)
            losses.append(self.update(x, y))
        torch.stack(losses).tolist()
        torch.use_deterministic_algorithms(True)
        use_batch_scheduling()

    def update(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(self.net(x), y.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def adam(parameters: Any, how: str) -> torch.optim.Optimizer:
    """Return PyTorch's Adam, ``fused`` or ``foreach``."""
    return torch.optim.Adam(parameters, RATE, **{how: True})


def redundancy(net: GPT, how: str) -> tuple[Any, Any]:
    """Return `ZeroRedundancyOptimizer` after `DistributedDataParallel`."""
    net = DistributedDataParallel(
        net, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True
    )
    shared = ZeroRedundancyOptimizer(
        net.parameters(), torch.optim.Adam, parameters_as_bucket_view=True, lr=RATE, **{how: True}
    )
    return net, shared


def fsdp(net: GPT, reshard: bool, how: str, blocks: bool) -> tuple[Any, Any]:
    """Return `fully_shard`, with each block a unit or one unit in all."""
    for block in net.blocks if blocks else ():
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(net, reshard_after_forward=reshard)
    return net, adam(net.parameters(), how)


class DeepSpeed(ByHand):
    """DeepSpeed's loop: its engine runs backward and updates."""

    def __init__(self, comm: Any, stage: int, **more: Any) -> None:
        super().__init__(comm, engine, stage=stage, more=more)

    def update(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(self.net(x), y.flatten())
        self.net.backward(loss)
        self.net.step()
        return loss.detach()


def engine(net: GPT, stage: int, more: dict[str, Any]) -> tuple[Any, Any]:
    """Return DeepSpeed's engine with PyTorch's fused Adam, which resembles DeepSpeed's own (an
    extension to compile)."""
    rank = torch.distributed.get_rank()
    os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank)}  # as its launcher would
    os.environ["WORLD_SIZE"] = str(torch.distributed.get_world_size())
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # minutes of compiling
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": stage, **more},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    made, optimizer, *_ = deepspeed.initialize(
        model=net, optimizer=adam(net.parameters(), "fused"), config=config
    )
    return made, optimizer


#: Variant → function that makes it on a rank.
OURS: dict[str, dict[str, Any]] = {
    "units": {"bucket_bytes": None},
    "units, overlap": {"bucket_bytes": None, "overlap": True},
    "one unit": {},
}


def variants(names: Sequence[str]) -> dict[str, Callable[[Any], Any]]:
    """Return the requested variants of ``ours``, ``torch`` and ``deepspeed``."""
    made: dict[str, Callable[[Any], Any]] = {}
    if "ours" in names:
        for stage in (1, 2, 3):
            for name, more in OURS.items():
                if stage > 1 or name == "one unit":
                    made[f"zero{stage} {name}"] = partial(ZeroUpdates, stage=stage, **more)
    for how in ("fused", "foreach") if "torch" in names else ():
        made[f"redundancy {how}"] = partial(ByHand, make=redundancy, how=how)
        for stage, reshard in ((2, False), (3, True)):
            for blocks in (False, True):
                name = f"fsdp{stage} {how} {'blocks' if blocks else 'whole'}"
                made[name] = partial(ByHand, make=fsdp, reshard=reshard, how=how, blocks=blocks)
    if "deepspeed" in names and find_spec("deepspeed"):
        for stage in (1, 2, 3):
            made[f"deepspeed{stage}"] = partial(DeepSpeed, stage=stage)
            made[f"deepspeed{stage} overlap"] = partial(DeepSpeed, stage=stage, overlap_comm=True)
    return made


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update, by variant."""
    calls = {name: make(comm) for name, make in variants(argument["engines"]).items()}
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / STEPS for t in found] for name, found in times.items()}


def measure_memory(comm: Any, argument: dict[str, Any]) -> dict[str, list[int]]:
    """Return variant → bytes of this rank's tensors between two updates, and the peak during one:
    what PyTorch's allocator handed out since the model was made, without samples."""
    alive: list[Any] = []  # what an earlier variant gives back would be taken off a later one
    return {
        name: allocated(partial(make, comm), alive)
        for name, make in variants(argument["engines"]).items()
    }


def allocated(make: Callable[[], Any], alive: list[Any]) -> list[int]:
    """Return the bytes allocated between two updates, and the peak during one."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call = make()
        alive.append(call)
        call()
        gc.collect()
        with record_function("last round"):
            call()
    events = seen.profiler.kineto_results.events()
    start = max(e.start_ns() for e in events if e.name() == "last round")
    sizes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now, most = 0, 0
    for at, nbytes in sizes:
        now += nbytes
        most = max(most, now) if at >= start else 0
    return [now, most]
