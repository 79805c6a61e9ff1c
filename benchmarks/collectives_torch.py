"""Time collectives in PyTorch on one rank; started by communication.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ranks import paced

from dualml.algorithms.model import model
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.aggregation import strategy
from dualml_torch.algorithms.gloo import loop_thread_ids, use_batch_scheduling

MANY = [10_486] * 100  # 100 equal tensors, 4 MB


def sizes(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return bytes → times of our all-reduce, of gloo's called directly, of our ring, and of a
    copy."""
    reduce, ring = strategy("all_reduce"), strategy("ring")
    found = {}
    for nbytes, repeats, names in argument["sizes"]:
        x = torch.zeros(nbytes // 4).fill_(0)  # written to: its pages are there
        y = torch.empty_like(x).fill_(0)
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda x=x: reduce.sum(comm, x),
            "native": lambda x=x: dist.all_reduce(x),
            "ring": lambda x=x: ring.sum(comm, x),
            "pushy": lambda x=x: pushy(lambda: reduce.sum(comm, x)),
            "copy": lambda x=x, y=y: y.copy_(x),
        }
        chosen = {name: calls[name] for name in names}
        found[str(nbytes)] = turns(comm, chosen, argument["rounds"], repeats)
    return found


def reset_scheduling() -> None:
    """Reset the scheduling of gloo's receiving threads to that of any script, until
    `wait_your_turn`."""
    for thread in loop_thread_ids():
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def pushy(call: Callable[[], Any]) -> None:
    """Run a call with gloo's threads scheduled as in any script, then restore dualml's settings."""
    reset_scheduling()
    call()
    use_batch_scheduling()


def buckets(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return model → times to sum its gradients as one flat bucket, and tensor by tensor."""
    reduce, found = strategy("all_reduce"), {}
    lenet = list(model("lenet").parameters().values())
    for name, shapes in {"lenet": lenet, "many": [(n,) for n in MANY]}.items():
        tensors = [torch.zeros(shape) for shape in shapes]
        flat = torch.zeros(sum(t.numel() for t in tensors))
        calls: dict[str, Callable[[], Any]] = {
            "bucket": lambda flat=flat: reduce.sum(comm, flat),
            "each": lambda tensors=tensors: [comm.all_reduce(t, inplace=True) for t in tensors],
        }
        found[name] = turns(comm, calls, argument["rounds"], argument["repeats"])
    return found


def turns(comm: Any, calls: dict[str, Callable[[], Any]], rounds: int, repeats: int) -> Times:
    """Time the calls in alternating order on all ranks."""
    return time_interleaved({n: paced(comm, call, repeats) for n, call in calls.items()}, rounds)
