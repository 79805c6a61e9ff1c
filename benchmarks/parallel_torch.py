"""Data-parallel training in PyTorch, dualml's and by hand; parallel.py starts it on each rank."""

from __future__ import annotations

from typing import Any

import torch
from collectives_torch import reset_scheduling
from handwritten_torch import lenet
from ourparallel import BATCH, LR, STEPS, Order, OurParallel, samples
from ranks import paced
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from dualml.interface.bench.timing import Times, time_interleaved
from dualml_torch.algorithms.gloo import use_batch_scheduling


class HandWritten:
    """The loop of an expert: `DistributedDataParallel` at its fastest, data in memory.

    Args:
        own: use gloo's threads as in a separate script, instead of as dualml configures them.
        how: ``fused=True`` or ``foreach=True`` of `torch.optim.SGD`.
    """

    def __init__(
        self, comm: Any, x: torch.Tensor, y: torch.Tensor, own: bool = True, **how: bool
    ) -> None:
        self.x, self.y, self.own, n = x, y, own, comm.size
        self.net = DistributedDataParallel(
            lenet(), broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=LR, **how)
        self.next = Order(len(y))
        self.mine = slice(comm.rank * BATCH // n, (comm.rank + 1) * BATCH // n)

    def __call__(self) -> None:
        # What a trial sets for its process is neither this loop's cost nor its gain.
        torch.use_deterministic_algorithms(False)
        if self.own:
            reset_scheduling()
        losses = []
        for _ in range(STEPS):
            batch = torch.from_numpy(self.next()[self.mine])
            loss = functional.cross_entropy(
                self.net(self.x.index_select(0, batch)), self.y.index_select(0, batch)
            )
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        torch.stack(losses).tolist()
        torch.use_deterministic_algorithms(True)
        use_batch_scheduling()


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update, by variant."""
    x, y = samples()
    own = torch.from_numpy(x), torch.from_numpy(y)
    torch.manual_seed(0)  # the same initial weights on every rank
    calls = {
        "ours": OurParallel(comm, x, y),
        "overlap": OurParallel(comm, x, y, overlap=True),
        "fused": HandWritten(comm, *own, fused=True),
        "foreach": HandWritten(comm, *own, foreach=True),
        "turns": HandWritten(comm, *own, own=False, foreach=True),
    }
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / STEPS for t in found] for name, found in times.items()}
