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

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.communicator.parts import part_lengths
from dualml.algorithms.model.streams import SLOT as HIDDEN
from dualml.algorithms.precision import SLOT
from dualml.backend import (
    Array,
    Arrays,
    Backend,
    BatchTrace,
    MixedPrecision,
    StateCarryover,
    TrainingSpec,
    batch_digest,
)
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.remote import SplitModel
from dualml.parallel.split.shards import all_gather_arrays
from dualml.parallel.split.timeline import Timeline
from dualml_torch.algorithms.communicator import TorchCommunicator
from dualml_torch.algorithms.model import LOSSES
from dualml_torch.algorithms.model.network import LOWER
from dualml_torch.algorithms.optim import implementation
from dualml_torch.parallel import rpc_stages as served
from dualml_torch.parallel.rpc_agent import (
    DistributedOptimizer,
    start_agent,
    translate_errors,
    worker_name,
)

LazyLosses = list[tuple[torch.Tensor, float]]
MicroBatch = tuple[Array, float]  # samples of a micro-batch, their share of the batch
#: Ranks meet the driver after every update if one takes more than this share of the timeout.
MEETING_TIMEOUT_SHARE = 0.01


@dataclass
class RpcExecution:
    """RPC implementation of `dualml.parallel.split.remote.Execution`; only the driver's timeline
    has events."""

    plan: SplitPlan
    seed: int
    timeline: Timeline = field(default_factory=Timeline)
    slow: Straggler | None = None
    max_in_flight: int = 0
    max_saved_bytes: int = 0


class RpcTraining(SplitModel, MixedPrecision, StateCarryover):
    """PyTorch RPC implementation of `dualml.parallel.split.remote.SplitModel`. Every rank calls the
    same methods in the same order.

    The driver holds the loss scale; other ranks get it with the state.
    """

    calls = "torch.distributed.rpc, TensorPipe"

    def __init__(
        self, backend: Backend, plan: SplitPlan, comm: TorchCommunicator, recipe: TrainingSpec
    ) -> None:
        self.backend, self.plan, self.comm, self.recipe = backend, plan, comm, recipe
        self.x, self.y, rule = recipe.x, recipe.y, recipe.rule
        self.loss, self.shapes, self.step_count = LOSSES[recipe.loss], plan.spec.parameters(), 0
        self.executor = RpcExecution(plan, seed=recipe.seed)
        self.slowest, self.needs_barrier = 0.0, False
        self.scaler, self.lower = recipe.precision.make_scaler(), LOWER.get(recipe.precision.type)
        kind = implementation(rule)
        start_agent(comm)
        self.is_driver = comm.rank == plan.driver
        if not self.is_driver:
            return
        self.inputs, self.labels = torch.from_numpy(self.x), torch.from_numpy(self.y)
        with translate_errors(comm, "making the stages"):
            more = (recipe.seed, self.lower, recipe.streams)
            self.stages = [
                rpc.remote(worker_name(rank), served.SubNetwork, args=(plan.spec, names, *more))
                for rank, names in zip(plan.place, plan.stages, strict=True)
            ]
            held = [self.call_stage(stage, "parameters")() for stage in self.stages]
            every = {name: p for part in held for name, p in part.items()}
            self.optimizer = DistributedOptimizer(kind, [*every.values()], **asdict(rule))
        self.names = [list(part) for part in held]
        self.optimizers = [  # per rank, with its parameters' names in order
            (local, [n for n, p in every.items() if p.owner().id == local.owner().id])
            for local in self.optimizer.remote_optimizers
        ]

    @property
    def precision_policy(self) -> Implementation:
        """Native arithmetic in the low-precision type that the detail names; the text ``None``
        stands for float32."""
        return Implementation("native", str(self.lower))

    def call_on_owner(
        self, rref: Any, function: Callable[..., Any], *args: Any
    ) -> Callable[[], Any]:
        """Start ``function(rref, *args)`` on the rank that owns the reference; return a function
        that waits for the result. Where this rank owns it, the call is made at once, without the
        agent."""
        if rref.is_owner():
            result = function(rref, *args)
            return lambda: result
        future = rpc.rpc_async(rref.owner(), function, args=(rref, *args))

        def wait() -> Any:
            with translate_errors(self.comm, f"calling rank {rref.owner().id}"):
                return future.wait()

        return wait

    def call_stage(self, stage: Any, method: str, *args: Any) -> Callable[[], Any]:
        """Start a call of a stage's ``method`` on its rank; return a function that waits for the
        result."""
        return self.call_on_owner(stage, served.call_method, method, *args)

    def step(self, batch: Array, step: int) -> LazyLosses:
        """Make update ``step``; every rank calls it. Return pairs of a micro-batch's detached mean
        loss and share on the driver, an empty list on the ranks that serve."""
        losses: LazyLosses = []
        if self.is_driver:
            begin = time.perf_counter()
            self.executor.timeline.begin_step(step)
            with dist_autograd.context() as context:
                losses = self.forward_backward(context, batch, step)
                self.update(context, step)
            self.carry_states(keep=True)
            self.slowest = max(self.slowest, time.perf_counter() - begin)
        if self.needs_barrier:
            self.comm.barrier()
        self.step_count = step
        return losses

    def forward_backward(self, context: int, batch: Array, step: int) -> LazyLosses:
        """Run forward and backward passes of update ``step`` on the driver; return detached losses
        and shares. The gradients, times the loss scale, stay in the context, each on its rank."""
        sizes = part_lengths(len(batch), self.plan.micro_batches)
        cut = np.split(batch, np.cumsum(sizes)[:-1])
        parts = [(part, len(part) / len(batch)) for part in cut if len(part)]
        with self.executor.timeline.record("F"):
            losses = self.forward(parts, step)
        with self.executor.timeline.record("B"), translate_errors(self.comm, "going backward"):
            dist_autograd.backward(
                context, [loss * (part * self.loss_scale) for loss, part in losses]
            )
        return [(loss.detach(), part) for loss, part in losses]

    def forward(self, parts: Sequence[MicroBatch], step: int) -> LazyLosses:
        """Return losses, with their graph, and shares of the micro-batches; the driver alone calls
        it. A stage works on one micro-batch while the previous stage works on the next."""
        waits: dict[int, Callable[[], torch.Tensor]] = {}
        last = len(self.stages) - 1
        for tick in range(len(parts) + last):
            for stage in reversed(range(last + 1)):  # first stages whose output is awaited
                micro = tick - stage
                if 0 <= micro < len(parts):
                    index = torch.from_numpy(parts[micro][0])
                    x = waits[micro]() if stage else self.inputs.index_select(0, index)
                    spec = self.plan.spec
                    samples = index if spec.dropout_names or spec.stateful else None
                    waits[micro] = self.call_stage(self.stages[stage], "forward", x, step, samples)
        labels = [self.labels.index_select(0, torch.from_numpy(samples)) for samples, _ in parts]
        logits = [waits[i]().float() for i in range(len(parts))]
        return [(self.loss(logits[i], labels[i]), part) for i, (_, part) in enumerate(parts)]

    def update(self, context: int, step: int) -> None:
        """Unscale the gradients and update all stages, unless a loss scaler skips the update
        because a gradient is not finite; the driver alone calls it."""
        with self.executor.timeline.record("update"), translate_errors(self.comm, "updating"):
            if not self.recipe.schedule.constant:
                self.call_optimizers(served.set_rate, self.recipe.learning_rate(step))
            scale = self.loss_scale
            if self.should_step(self.scaler is None or all(self.call_stages("finite", context))):
                if self.scaler is not None:
                    self.call_stages("unscale", context, scale)
                self.optimizer.step(context)

    def carry_states(self, *, keep: bool) -> None:
        """Let the stages keep the final hidden states of the last pass, or discard them; do nothing
        for a model without. The driver alone calls it."""
        if self.plan.spec.stateful:
            self.call_stages("carry", keep)

    def materialize_losses(self, lazy: Sequence[LazyLosses]) -> Array:
        """Return the mean losses of the batches; every rank calls it and gets them. It also decides
        whether the ranks meet after each later update (`MEETING_TIMEOUT_SHARE`)."""
        losses = self.backend.materialize_losses(lazy) if self.is_driver else np.zeros(len(lazy))
        *means, slowest = self.broadcast_numbers(np.array([*losses, self.slowest]))
        self.needs_barrier = slowest > MEETING_TIMEOUT_SHARE * self.comm.context.timeout
        return np.array(means)

    def micro_batch_losses(self, lazy: LazyLosses) -> None:
        """Return None on every rank, the driver's too: losses of single micro-batches are not
        reported."""

    def count_saved_bytes(self, on: bool) -> None:
        """Do nothing: activations of remote calls are not visible here."""

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Compute loss and unscaled gradients of ``batch``, and activations of the samples
        ``probe``, on the driver, without an update; every rank calls it and gets them."""
        losses, gradients = LazyLosses(), Arrays()
        if self.is_driver:
            with self.executor.timeline.pause_recording(), dist_autograd.context() as context:
                losses = self.forward_backward(context, batch, self.step_count + 1)
                gradients = self.unscale_gradients(self.gather_arrays("gradients", context))
            self.carry_states(keep=False)
        loss = float(self.materialize_losses([losses])[0])
        return BatchTrace(
            *self.capture_forward(batch, probe),
            loss=loss,
            gradients=self.broadcast_arrays(gradients),
        )

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the digest of ``batch``, which is not run, and the layers' outputs for the samples
        ``probe``, in evaluation mode; every rank calls it and gets them."""
        activations = self.layer_outputs(self.x[probe]) if self.is_driver else {}
        seen = self.broadcast_arrays({name: y.float().numpy() for name, y in activations.items()})
        return batch_digest(*self.fetch_batch(batch)), seen

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the driver's samples and labels of a batch; every rank calls it and gets them."""
        own = {"x": self.x[batch], "y": self.y[batch]} if self.is_driver else {}
        given = all_gather_arrays(self.comm, own)[self.plan.driver]
        return given["x"], given["y"]

    def layer_outputs(self, x: Array) -> dict[str, torch.Tensor]:
        """Return the output of each layer for the samples ``x`` in evaluation mode, by name; the
        driver alone calls it."""
        activations, value = dict[str, torch.Tensor](), torch.from_numpy(x)
        for stage in self.stages:
            outputs = self.call_stage(stage, "outputs", value)()
            activations, value = activations | outputs, [*outputs.values()][-1]
        return activations

    @torch.no_grad()
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return mean loss and predicted classes, int64, in the shape of ``y``; every rank calls it
        and gets them. The driver calls the stages in turn, for all samples at once."""
        packed = np.zeros(1 + y.size)
        if self.is_driver:
            value = torch.from_numpy(x)
            for stage in self.stages:
                value = self.call_stage(stage, "infer", value)()
            packed[0] = float(self.loss(value.float(), torch.from_numpy(y)))
            packed[1:] = value.argmax(dim=-1).numpy().ravel()
        packed = self.broadcast_numbers(packed)
        return float(packed[0]), packed[1:].astype(np.int64).reshape(y.shape)

    def weights(self) -> Arrays:
        """Return copies of all stages' parameters by canonical name; every rank calls it and gets
        all."""
        return self.broadcast_arrays(self.gather_arrays("weights") if self.is_driver else {})

    def state(self) -> dict[str, Arrays]:
        """Return optimizer state, loss scaler and hidden states of all stages; every rank calls it
        and gets all, and its own loss scaler takes over the driver's."""
        flat: Arrays = {}
        states = (
            [self.scaler_state(), *self.call_optimizers(served.get_optimizer_state)]
            if self.is_driver
            else []
        )
        if self.is_driver and self.plan.spec.stateful:
            states.append({HIDDEN: self.gather_arrays("states")})
        for state in states:
            flat |= {f"{s}/{name}": a for s, named in state.items() for name, a in named.items()}
        flat = all_gather_arrays(self.comm, flat)[self.plan.driver]
        slots: dict[str, Arrays] = {}
        for key in flat:
            slot, name = key.split("/", 1)
            slots.setdefault(slot, {})[name] = flat[key]
        if scaling := slots.pop(SLOT, None):  # scalars, sent as arrays of one element
            self.pop_scaler_state({SLOT: {name: a.reshape(()) for name, a in scaling.items()}})
        carried = {HIDDEN: slots.pop(HIDDEN)} if HIDDEN in slots else {}
        own = {slot: {name: named[name] for name in self.shapes} for slot, named in slots.items()}
        return own | self.scaler_state() | carried

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore the state after update ``step``; the driver sends weights, hidden states and
        optimizer states to the stages. Every rank calls it, for its own count and loss scaler."""
        self.step_count, state = step, self.pop_scaler_state(state)
        if self.is_driver:
            for stage, names in zip(self.stages, self.names, strict=True):
                self.call_stage(stage, "load", {name: weights[name] for name in names})()
            if self.plan.spec.stateful:
                self.call_stages("load_states", {HIDDEN: state.get(HIDDEN, {})})
            state = {slot: named for slot, named in state.items() if slot != HIDDEN}
            self.call_optimizers(served.set_optimizer_state, state, self.applied_steps(step))

    def call_optimizers(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(reference, names, *args)``, with a reference to its optimizer and its
        parameters' names, on every rank that has parameters, at the same time; return the results,
        one per rank. The driver alone calls it."""
        waits = [
            self.call_on_owner(local, function, names, *args) for local, names in self.optimizers
        ]
        return [wait() for wait in waits]

    def call_stages(self, method: str, *args: Any) -> list[Any]:
        """Call a method on every stage, at the same time; return the results in the order of the
        stages. The driver alone calls it."""
        waits = [self.call_stage(stage, method, *args) for stage in self.stages]
        return [wait() for wait in waits]

    def gather_arrays(self, method: str, *args: Any) -> Arrays:
        """Call a method of every stage that returns arrays by name; return all of them in one dict.
        The driver alone calls it."""
        return {
            name: array
            for arrays in self.call_stages(method, *args)
            for name, array in arrays.items()
        }

    def broadcast_arrays(self, arrays: Arrays) -> Arrays:
        """Return the driver's arrays on every rank, in the order of parameters, then layers; arrays
        of other names are left out, and so are those of the other ranks."""
        received = all_gather_arrays(self.comm, arrays)[self.plan.driver]
        order = (*self.shapes, *dict(self.plan.spec.layers))
        return {name: received[name] for name in order if name in received}

    def broadcast_numbers(self, numbers: Array) -> Any:
        """Return the driver's array of numbers on every rank; all call it, the others with any
        array of its shape."""
        return self.comm.numpy(self.comm.broadcast(self.comm.tensor(numbers), self.plan.driver))
