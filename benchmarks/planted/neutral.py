"""Mistakes that are the same in both frameworks: changes to rules, schedules, samples and ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dualml.algorithms.model import layers as spec


def rule_of(name: str) -> Callable[[Any], Any] | None:
    """The rule that is used in place of the right one, where that is all there is to it."""
    changes: dict[str, Callable[[Any], Any]] = {
        "adam-hat": lambda r: replace(r, eps_form="hat"),
        "no-bias-correction": lambda r: replace(r, bias_correction=False),
        "small-epsilon": lambda r: replace(r, eps=1e-8),
        "beta2": lambda r: replace(r, betas=(0.9, 0.99)),
        "coupled": coupled,
        "no-decay": lambda r: replace(r, weight_decay=0.0),
        "no-momentum": lambda r: replace(r, momentum=0.0),
        "dampened": lambda r: replace(r, dampening=0.9),
        "nesterov-ignored": lambda r: replace(r, nesterov=False),
        "alpha": lambda r: replace(r, alpha=0.9),
        "accumulator": lambda r: replace(r, initial_accumulator=0.1),
    }
    return changes.get(name)


def coupled(rule: Any) -> Any:
    from dualml.algorithms.optim import Adam

    return Adam(**asdict(rule))


def schedule(name: str) -> bool:
    """Plants in `Schedule.factor`."""
    from dualml.algorithms.optim.schedule import LRSchedule

    right = LRSchedule.factor
    if name == "early-schedule":
        LRSchedule.factor = lambda self, step, updates=0: right(self, step + 1, updates)
    elif name == "late-schedule":
        LRSchedule.factor = lambda self, step, updates=0: right(self, max(1, step - 1), updates)
    elif name == "by-epoch":
        LRSchedule.factor = lambda self, step, updates=0: right(
            self, (step - 1) // 8 * 8 + 1, updates
        )
    else:
        return False
    return True


def held(name: str, x: Any, y: Any) -> tuple[Any, Any] | None:
    """The training set as the backend keeps it, changed; NumPy arrays."""
    if name == "labels":
        return x, (y + 1) % 10
    if name == "not-normalised":
        from dualml.experiment.data import load

        told = load("digits", explicit=True)
        return (x * np.float32(told.std) + np.float32(told.mean)).astype(np.float32), y
    if name == "transposed":
        return np.ascontiguousarray(x.swapaxes(-1, -2)), y
    if name == "half-images":
        return x.astype(np.float16).astype(np.float32), y
    return None


def part_of(name: str, part: Any) -> Any:
    """The samples of a batch that are taken."""
    if name == "dropped":
        return part[:-1]
    if name == "padded" and len(part) < 32:
        return np.resize(part, 32)
    return part


def ranks(name: str) -> bool:
    """Plants in what ranks do together."""
    from dualml.experiment.batches import BatchSampler
    from dualml.parallel.aggregation.compress import sum_fp16
    from dualml.parallel.aggregation.parallel import DataParallel

    right, parts = DataParallel.reduce_bucket, BatchSampler.parts
    if name == "next-batch":
        BatchSampler.parts = lambda self, step: parts(self, step + 1)
    elif name == "rank-sum":
        DataParallel.gradient_factor = lambda self, share: 1.0
    elif name == "same-part":
        deal = DataParallel.local_batch
        DataParallel.local_batch = lambda self, batch: deal(self, [batch[0]] * len(batch))
    elif name == "averaged-twice":
        DataParallel.reduce_bucket = lambda self, x, b: self.comm.scale(
            right(self, x, b), 1 / self.comm.size
        )
    elif name in ("unsynchronised", "lost-bucket", "apart", "bucket-apart"):
        keep_own_gradient(name)
    elif name == "lost-rank":
        DataParallel.reduce_bucket = lambda self, x, b: right(
            self, self.comm.scale(x, 0.0) if self.comm.rank == 1 else x, b
        )
    elif name == "half-sum":
        DataParallel.reduce_bucket = lambda self, x, b: right(self, rounded(self.comm, x), b)
    elif name == "short-sum":
        DataParallel.reduce_bucket = lambda self, x, b: sum_fp16(self.strategy, self.comm, x)
    else:
        return False
    return True


def keep_own_gradient(name: str) -> None:
    """Let one rank keep its own gradient, or that of the second bucket alone.

    Plants ``…apart`` are of rank 1, whose weights then differ. The others are of rank 0, which
    sends its weights afterwards: the ranks agree, and the mistake reaches the comparison.
    """
    from dualml.parallel.aggregation.parallel import DataParallel

    right, finish = DataParallel.reduce_bucket, DataParallel.finish
    apart, whole = name.endswith("apart"), "bucket" not in name

    def reduce_bucket(self: Any, x: Any, bucket: str) -> Any:
        own = self.comm.copy(x)
        total = right(self, x, bucket)
        return own if self.comm.rank == apart and (whole or bucket == "bucket1") else total

    def send_weights(self: Any, gradients: Any) -> None:
        finish(self, gradients)
        self.buckets.assign([self.comm.broadcast(p, 0) for p in self.buckets.parameters()])

    DataParallel.reduce_bucket = reduce_bucket
    if not apart:
        DataParallel.finish = send_weights


def rounded(comm: Any, x: Any) -> Any:
    """Return ``x`` rounded to float16 in its own type: a run that sends the short type itself moves
    fewer bytes than its strategy requires, and is refused before it is compared."""
    return comm.cast(comm.cast(x, "float16"), comm.dtype(x))


def micro(name: str, micro_batch: int, share: float) -> float | None:
    """The share with which a micro-batch counts in the gradient."""
    if name == "lost-micro-batch":
        return 0.0 if micro_batch == 2 else share
    if name == "summed-micro-batches":
        return 1.0
    return None


def linear(kind: Any, outputs: int) -> Any:
    """Another layer for the linear ones with so many outputs."""
    return lambda layer: (
        kind(layer.inputs, layer.outputs)
        if isinstance(layer, spec.Linear) and layer.outputs == outputs
        else None
    )


def on(kind: Any, make: Any) -> Any:
    """What is made of layers of a kind, None for all others."""
    return lambda layer: make(layer) if isinstance(layer, kind) else None


def plant(name: str, training: Any, network: Any, layers: Any, others: Any) -> None:
    """Change a backend.

    Args:
        training, network: its modules of these names.
        layers: plant → what it makes of a layer of the spec, None for another layer.
        others: plant → what changes the backend.

    Raises:
        KeyError: there is no such plant.
    """
    if (change := rule_of(name)) is not None:
        made = training.optimizer
        training.optimizer = lambda rule, *given, **how: made(change(rule), *given, **how)
    elif schedule(name) or ranks(name):
        pass
    elif name in layers:
        right = network.make_layer
        network.make_layer = lambda layer: layers[name](layer) or right(layer)
    else:
        others[name](name)
