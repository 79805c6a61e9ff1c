"""A model split by layer with `torch.distributed.rpc`, as in the framework's own tutorials.

The driver makes the stages on their ranks (`rpc.remote`), referred to by `RRef`. An update is a
`torch.distributed.autograd.context`: the driver calls one stage after the other, computes the loss,
calls `dist_autograd.backward`, which follows the calls back through all ranks, and has a
`DistributedOptimizer` update every parameter where it is. The other ranks serve: threads of their
agents do the work, while the ranks themselves wait for the driver in the next collective.

Micro-batches go forward in a pipeline and backward all together: a second backward pass in one
context waits for answers to the calls of the first, until it is too late. Their gradients are added
up in the order in which they arrive, so that with three or more two runs may differ in rounding.

Source: PyTorch, "Distributed Pipeline Parallelism Using RPC" and "Getting Started with Distributed
RPC Framework".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

from dualml.aggregation.slow import Slow
from dualml.backend import Array, Arrays, Backend, Carrying, Mixed, Recipe, Trace, batch_digest
from dualml.communicator import How
from dualml.communicator.parts import parts_of
from dualml.model.streams import SLOT as HIDDEN
from dualml.precision import SLOT
from dualml.split.pieces import share
from dualml.split.plan import SplitPlan
from dualml.split.remote import SplitModel
from dualml.split.timeline import Timeline
from dualml_torch import rpc_served as served
from dualml_torch.communicator import TorchCommunicator
from dualml_torch.model import LOSSES
from dualml_torch.model.network import LOWER
from dualml_torch.optim import implementation
from dualml_torch.rpc_agent import DistributedOptimizer, name_of, start, told

Lazy = list[tuple[torch.Tensor, float]]
Part = tuple[Array, float]  # samples of a micro-batch, their share of the batch
#: Ranks meet the driver after every update if one takes more than this share of the timeout.
PATIENCE = 0.01


@dataclass
class Calls:
    """RPC implementation of `dualml.split.remote.Execution`; only the driver's timeline has
    events."""

    plan: SplitPlan
    seed: int
    timeline: Timeline = field(default_factory=Timeline)
    slow: Slow | None = None
    live: int = 0
    held: int = 0


class RpcTraining(SplitModel, Mixed, Carrying):
    """PyTorch RPC implementation of `dualml.split.remote.SplitModel`. Every rank calls the same
    methods in the same order.

    The driver holds the loss scale; other ranks get it with the state.
    """

    calls = "torch.distributed.rpc, TensorPipe"

    def __init__(
        self, backend: Backend, plan: SplitPlan, comm: TorchCommunicator, recipe: Recipe
    ) -> None:
        self.backend, self.plan, self.comm, self.recipe = backend, plan, comm, recipe
        self.x, self.y, rule = recipe.x, recipe.y, recipe.rule
        self.loss, self.shapes, self.now = LOSSES[recipe.loss], plan.spec.parameters(), 0
        self.executor = Calls(plan, seed=recipe.seed)
        self.slowest, self.meets = 0.0, False
        self.scaler, self.lower = recipe.precision.scaler(), LOWER.get(recipe.precision.type)
        kind = implementation(rule)
        start(comm)
        self.drives = comm.rank == plan.driver
        if not self.drives:
            return
        self.inputs, self.labels = torch.from_numpy(self.x), torch.from_numpy(self.y)
        with told(comm, "making the stages"):
            more = (recipe.seed, self.lower, recipe.streams)
            self.stages = [
                rpc.remote(name_of(rank), served.SubNetwork, args=(plan.spec, names, *more))
                for rank, names in zip(plan.place, plan.stages, strict=True)
            ]
            held = [self.call(stage, "parameters")() for stage in self.stages]
            every = {name: p for part in held for name, p in part.items()}
            self.optimizer = DistributedOptimizer(kind, [*every.values()], **asdict(rule))
        self.names = [list(part) for part in held]
        self.optimizers = [  # per rank, with its parameters' names in order
            (local, [n for n, p in every.items() if p.owner().id == local.owner().id])
            for local in self.optimizer.remote_optimizers
        ]

    @property
    def held(self) -> How:
        return How("native", str(self.lower))

    def on(self, rref: Any, function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        """Start ``function(rref, *args)`` on the rank that owns the reference; return a function
        that waits for the result. A local call runs at once, without the agent."""
        if rref.is_owner():
            result = function(rref, *args)
            return lambda: result
        future = rpc.rpc_async(rref.owner(), function, args=(rref, *args))

        def wait() -> Any:
            with told(self.comm, f"calling rank {rref.owner().id}"):
                return future.wait()

        return wait

    def call(self, stage: Any, method: str, *args: Any) -> Callable[[], Any]:
        """Start a call of a stage's method; return a function that waits for the result."""
        return self.on(stage, served.call, method, *args)

    def step(self, batch: Array, step: int) -> Lazy:
        """Make one update; return the lazy losses of the micro-batches, none on ranks that
        serve."""
        losses: Lazy = []
        if self.drives:
            begin = time.perf_counter()
            self.executor.timeline.begin(step)
            with dist_autograd.context() as context:
                losses = self.passes(context, batch, step)
                self.update(context, step)
            self.carry(keep=True)
            self.slowest = max(self.slowest, time.perf_counter() - begin)
        if self.meets:
            self.comm.barrier()
        self.now = step
        return losses

    def passes(self, context: int, batch: Array, step: int) -> Lazy:
        """Run forward and backward passes; the gradients stay in the context, each on its rank."""
        sizes = parts_of(len(batch), self.plan.micro_batches)
        cut = np.split(batch, np.cumsum(sizes)[:-1])
        parts = [(part, len(part) / len(batch)) for part in cut if len(part)]
        with self.executor.timeline.during("F"):
            losses = self.forward(parts, step)
        with self.executor.timeline.during("B"), told(self.comm, "going backward"):
            dist_autograd.backward(context, [loss * (part * self.scale) for loss, part in losses])
        return [(loss.detach(), part) for loss, part in losses]

    def forward(self, parts: Sequence[Part], step: int) -> Lazy:
        """Return losses and shares of the micro-batches. A stage works on one micro-batch while the
        previous stage works on the next."""
        waits: dict[int, Callable[[], torch.Tensor]] = {}
        last = len(self.stages) - 1
        for tick in range(len(parts) + last):
            for stage in reversed(range(last + 1)):  # first stages whose output is awaited
                micro = tick - stage
                if 0 <= micro < len(parts):
                    index = torch.from_numpy(parts[micro][0])
                    x = waits[micro]() if stage else self.inputs.index_select(0, index)
                    spec = self.plan.spec
                    samples = index if spec.dropouts or spec.stateful else None
                    waits[micro] = self.call(self.stages[stage], "forward", x, step, samples)
        labels = [self.labels.index_select(0, torch.from_numpy(samples)) for samples, _ in parts]
        logits = [waits[i]().float() for i in range(len(parts))]
        return [(self.loss(logits[i], labels[i]), part) for i, (_, part) in enumerate(parts)]

    def update(self, context: int, step: int) -> None:
        """Unscale the gradients and update all stages, unless a gradient is not finite."""
        with self.executor.timeline.during("update"), told(self.comm, "updating"):
            if not self.recipe.schedule.constant:
                self.each_optimizer(served.set_rate, self.recipe.rate(step))
            scale = self.scale
            if self.accepts(self.scaler is None or all(self.ask("finite", context))):
                if self.scaler is not None:
                    self.ask("unscale", context, scale)
                self.optimizer.step(context)

    def carry(self, *, keep: bool) -> None:
        """Let the stages keep the final states of the last pass, or discard them."""
        if self.plan.spec.stateful:
            self.ask("carry", keep)

    def read(self, lazy: Sequence[Lazy]) -> Array:
        """Return the mean losses of the batches, on every rank."""
        losses = self.backend.read(lazy) if self.drives else np.zeros(len(lazy))
        *means, slowest = self.broadcast(np.array([*losses, self.slowest]))
        self.meets = slowest > PATIENCE * self.comm.place.timeout
        return np.array(means)

    def each_loss(self, lazy: Lazy) -> None:
        """Return None: only the driver knows the losses of micro-batches."""

    def count_kept(self, on: bool) -> None:
        """Do nothing: activations of remote calls are not visible here."""

    def trace(self, batch: Array, probe: Array) -> Trace:
        losses, gradients = Lazy(), Arrays()
        if self.drives:
            with self.executor.timeline.off(), dist_autograd.context() as context:
                losses = self.passes(context, batch, self.now + 1)
                gradients = self.unscaled(self.together("gradients", context))
            self.carry(keep=False)
        loss = float(self.read([losses])[0])
        return Trace(*self.look(batch, probe), loss=loss, gradients=self.shared(gradients))

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        activations = self.outputs(self.x[probe]) if self.drives else {}
        seen = self.shared({name: y.float().numpy() for name, y in activations.items()})
        return batch_digest(*self.given(batch)), seen

    def given(self, batch: Array) -> tuple[Array, Array]:
        """Return the driver's samples and labels of a batch, on every rank."""
        own = {"x": self.x[batch], "y": self.y[batch]} if self.drives else {}
        given = share(self.comm, own)[self.plan.driver]
        return given["x"], given["y"]

    def outputs(self, x: Array) -> dict[str, torch.Tensor]:
        """Return the output of each layer in evaluation mode, by name."""
        activations, value = dict[str, torch.Tensor](), torch.from_numpy(x)
        for stage in self.stages:
            outputs = self.call(stage, "outputs", value)()
            activations, value = activations | outputs, [*outputs.values()][-1]
        return activations

    @torch.no_grad()
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        packed = np.zeros(1 + y.size)
        if self.drives:
            value = torch.from_numpy(x)
            for stage in self.stages:
                value = self.call(stage, "infer", value)()
            packed[0] = float(self.loss(value.float(), torch.from_numpy(y)))
            packed[1:] = value.argmax(dim=-1).numpy().ravel()
        packed = self.broadcast(packed)
        return float(packed[0]), packed[1:].astype(np.int64).reshape(y.shape)

    def weights(self) -> Arrays:
        return self.shared(self.together("weights") if self.drives else {})

    def state(self) -> dict[str, Arrays]:
        flat: Arrays = {}
        states = [self.scaling(), *self.each_optimizer(served.state_of)] if self.drives else []
        if self.drives and self.plan.spec.stateful:
            states.append({HIDDEN: self.together("states")})
        for state in states:
            flat |= {f"{s}/{name}": a for s, named in state.items() for name, a in named.items()}
        flat = share(self.comm, flat)[self.plan.driver]
        slots: dict[str, Arrays] = {}
        for key in flat:
            slot, name = key.split("/", 1)
            slots.setdefault(slot, {})[name] = flat[key]
        if scaling := slots.pop(SLOT, None):  # scalars, sent as arrays of one element
            self.rescale({SLOT: {name: a.reshape(()) for name, a in scaling.items()}})
        carried = {HIDDEN: slots.pop(HIDDEN)} if HIDDEN in slots else {}
        own = {slot: {name: named[name] for name in self.shapes} for slot, named in slots.items()}
        return own | self.scaling() | carried

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.now, state = step, self.rescale(state)
        if self.drives:
            for stage, names in zip(self.stages, self.names, strict=True):
                self.call(stage, "load", {name: weights[name] for name in names})()
            if self.plan.spec.stateful:
                self.ask("load_states", {HIDDEN: state.get(HIDDEN, {})})
            state = {slot: named for slot, named in state.items() if slot != HIDDEN}
            self.each_optimizer(served.set_state, state, self.made(step))

    def each_optimizer(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(optimizer, names, *args)`` on every rank that has parameters; return the
        results."""
        waits = [self.on(local, function, names, *args) for local, names in self.optimizers]
        return [wait() for wait in waits]

    def ask(self, method: str, *args: Any) -> list[Any]:
        """Call a method on every stage; return the results."""
        waits = [self.call(stage, method, *args) for stage in self.stages]
        return [wait() for wait in waits]

    def together(self, method: str, *args: Any) -> Arrays:
        """Return the named arrays of all stages."""
        return {name: array for arrays in self.ask(method, *args) for name, array in arrays.items()}

    def shared(self, arrays: Arrays) -> Arrays:
        """Send the driver's arrays to every rank."""
        received = share(self.comm, arrays)[self.plan.driver]
        order = (*self.shapes, *dict(self.plan.spec.layers))
        return {name: received[name] for name in order if name in received}

    def broadcast(self, numbers: Array) -> Any:
        """Send the driver's numbers to every rank."""
        return self.comm.numpy(self.comm.broadcast(self.comm.tensor(numbers), self.plan.driver))
