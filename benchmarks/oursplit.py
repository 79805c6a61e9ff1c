"""dualml's update of a split model as a trial runs it, for either framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from efficiency import own_core
from ourparallel import Order, samples
from ranks import paced

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.layers import Linear, MeanPool, Rows, Tanh
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import SGD
from dualml.backend import RemoteProcedureCalls, TrainingSpec, backends
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.split import traffic
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.training import SplitTraining

LR, MICRO = 0.02, 4
PIPELINE: dict[str, Any] = {"cut": ["fc4"], "schedule": "1f1b", "micro_batches": MICRO}


def balanced_model(each: int = 16, width: int = 512, cut: int = 8) -> ModelSpec:
    """Return a model whose halves, cut at ``second``, need equal time forward and backward and
    exchange little: equal layers for every row of an image, narrow at the cut. Everything else
    hardly counts."""
    layers: list[tuple[str, Any]] = [("rows", Rows()), ("embed", Linear(28, width))]
    for number in range(2 * each):
        if number == each:
            layers += [("narrow", Linear(width, cut)), ("second", Linear(cut, width))]
        layers += [(f"fc{number}", Linear(width, width)), (f"tanh{number}", Tanh())]
    layers += [("pool", MeanPool()), ("head", Linear(width, 10))]
    return ModelSpec("even", (1, 28, 28), tuple(layers))


def recipe_of(spec: ModelSpec, x: Any, y: Any, updates: int) -> TrainingSpec:
    """Return the training configuration: SGD from fixed initial weights."""
    weights = initial_weights(spec, 0)
    return TrainingSpec(spec=spec, weights=weights, rule=SGD(lr=LR), x=x, y=y, updates=updates)


class Updates:
    """Updates of a split model, whose losses are read together."""

    training: Any

    def begin(self, recipe: TrainingSpec, batch: int) -> None:
        """Load the same initial weights in every variant."""
        self.training.load(recipe.weights, recipe.initial_state(), 0)
        self.next, self.step, self.updates = Order(len(recipe.y), batch), 0, recipe.updates

    def __call__(self) -> None:
        lazy = []
        for _ in range(self.updates):
            self.step += 1
            lazy.append(self.training.step(self.next(), self.step))
        self.training.materialize_losses(lazy)


class OurSplit(Updates):
    """A model of the zoo with SGD, split over all ranks; the losses of ``updates`` are read
    together.

    Args:
        split: arguments of `split_plan`.
    """

    def __init__(
        self,
        comm: Any,
        x: Any,
        y: Any,
        name: str | ModelSpec,
        batch: int,
        updates: int,
        **split: Any,
    ) -> None:
        backend = backends()[comm.backend].create("cpu", 1)
        spec = model(name) if isinstance(name, str) else name
        plan, recipe = split_plan(spec, comm.size, **split), recipe_of(spec, x, y, updates)
        self.training = SplitTraining(backend, plan, comm, recipe)
        self.executor = self.training.executor
        self.begin(recipe, batch)


class OurRpc(Updates):
    """The same two stages, called by the framework's remote procedure calls."""

    def __init__(self, comm: Any, x: Any, y: Any, name: str, batch: int, updates: int) -> None:
        backend, recipe = (
            backends()[comm.backend].create("cpu", 1),
            recipe_of(model(name), x, y, updates),
        )
        plan = split_plan(recipe.spec, comm.size, engine="rpc", place=[0, 1])
        self.training = backend.require_capability(RemoteProcedureCalls).rpc(plan, comm, recipe)
        self.begin(recipe, batch)


class OurSingleRank:
    """Time updates of the unsplit model on rank 0 alone."""

    def __init__(self, comm: Any, x: Any, y: Any, name: str, batch: int, updates: int) -> None:
        self.rank, self.backend = comm.rank, backends()[comm.backend].create("cpu", 1)
        recipe = replace(recipe_of(model(name), x, y, updates), chunk=batch)
        self.training = self.backend.training(recipe)
        self.training.load(recipe.weights, recipe.initial_state(), 0)
        self.next, self.step, self.updates = Order(len(y), batch), 0, updates

    def __call__(self) -> None:
        lazy = []
        for _ in range(0 if self.rank else self.updates):
            self.step += 1
            lazy.append(self.training.step(self.next(), self.step))
        if lazy:
            self.backend.materialize_losses(lazy)


class Transfers:
    """The messages and collectives of a split's updates, without the computation."""

    def __init__(self, ours: OurSplit) -> None:
        self.ours, self.comm = ours, ours.executor.comm
        plan, rank, batch = ours.executor.plan, self.comm.rank, ours.next.batch
        links, collectives = traffic.links(plan, batch), traffic.collectives(plan, batch)
        sent = [link for link in links if link.source == rank]
        came = [link for link in links if link.target == rank]
        self.out = [
            (link.target, self.floats(link.nbytes // link.messages))
            for link in sent
            for _ in range(link.messages)
        ]
        self.into = [
            (link.source, self.floats(link.nbytes // link.messages))
            for link in came
            for _ in range(link.messages)
        ]
        self.collectives = [
            self.floats(c.nbytes // c.calls) for c in collectives for _ in range(c.calls)
        ]

    def floats(self, nbytes: int) -> Any:
        return self.comm.tensor(np.zeros(nbytes // 4, np.float32))

    def __call__(self) -> None:
        for _ in range(self.ours.updates):
            for (target, x), (source, buffer) in zip(self.out, self.into, strict=True):
                asked = self.comm.irecv(buffer, source)
                self.comm.isend(x, target).wait()
                asked.wait()
            for x in self.collectives:
                self.comm.all_reduce(x, inplace=True)


def races(comm: Any, x: Any, y: Any, batch: int, updates: int) -> dict[str, dict[str, Any]]:
    """Return dualml's splits, the unsplit model, and the transfers alone, by comparison and
    variant."""
    splits: dict[str, tuple[str, dict[str, Any]]] = {"pipeline": ("deep_mlp", PIPELINE)}
    splits |= {name: (name, {"tensor": 2}) for name in ("mlp", "wide_mlp")}
    found = {}
    for name, (net, split) in splits.items():
        ours = OurSplit(comm, x, y, net, batch, updates, **split)
        found[name] = {
            "ours": ours,
            "whole": OurSingleRank(comm, x, y, net, batch, updates),
            "transfers": Transfers(ours),
        }
    return found


def calls_or_messages(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return the milliseconds of an update of two stages, by model: remote procedure calls and
    messages."""
    own_core(comm.rank)
    x, y = samples()
    batch, updates = argument["batch"], argument["updates"]
    calls = {
        name: {
            "ours": OurRpc(comm, x, y, name, batch, updates),
            "messages": OurSplit(comm, x, y, name, batch, updates, stages=comm.size),
        }
        for name in argument["models"]
    }
    return race(comm, calls, argument["rounds"])


def race(comm: Any, calls: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, Times]:
    """Return the milliseconds of an update, by comparison and variant."""
    found = {}
    for name, variants in calls.items():
        times = time_interleaved({n: paced(comm, call) for n, call in variants.items()}, rounds)
        updates = variants["ours"].updates
        found[name] = {n: [t / updates for t in spent] for n, spent in times.items()}
    return found


def even_split(schedule: str, m: int) -> dict[str, Any]:
    """Return the split settings of the balanced model."""
    return {"cut": ["second"], "schedule": schedule, "micro_batches": m}


def even_plan(schedule: str, m: int) -> SplitPlan:
    """Return the split plan of the balanced model on two ranks."""
    return split_plan(balanced_model(), 2, **even_split(schedule, m))


def stages_at_work(comm: Any, argument: dict[str, Any]) -> dict[str, list[tuple[float, ...]]]:
    """Return schedule and number of micro-batches → this rank's timeline."""
    own_core(comm.rank)
    x, y = samples()
    found = {}
    for schedule in argument["schedules"]:
        for m in argument["micro_batches"]:
            batch = m * argument["each"]
            run = OurSplit(comm, x, y, balanced_model(), batch, 1, **even_split(schedule, m))
            run()
            run.updates = argument["updates"]
            comm.barrier()
            run.executor.timeline.clear()
            run()
            found[f"{schedule} {m}"] = run.executor.timeline.rows
    return found
