"""A split model as a `Training`, so that a trial uses it like a whole model.

Every rank calls the same methods in the same order. Weights, gradients and optimizer state go in
and come out whole, under their canonical names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator, Implementation
from dualml.algorithms.model.streams import merge_hidden_states
from dualml.backend import (
    ActivationRecomputation,
    ActivationResharding,
    Array,
    Arrays,
    Backend,
    BatchTrace,
    BlockwiseAttention,
    DevicePlacement,
    MemoryReport,
    MemoryUsage,
    MixedPrecision,
    MixedPrecisionStage,
    PipelineStages,
    Segment,
    Stage,
    StateCarryover,
    TrainingSpec,
    batch_digest,
)
from dualml.backend.devices import shift_devices
from dualml.backend.stage import OutputSplit
from dualml.common.errors import Unsupported
from dualml.common.former_members import keep_former_members
from dualml.parallel.split.executor import Executor
from dualml.parallel.split.plan import SplitPlan, StageView
from dualml.parallel.split.positions import POSITION_SLICES
from dualml.parallel.split.remote import SplitModel
from dualml.parallel.split.shards import all_gather_arrays, assemble_parameters, concat_slices
from dualml.parallel.split.tensor_parallel import ParallelOp

#: Key, next to the gathered tables of states, of the streams that a rank has processed.
FRESH = "fresh streams"


@keep_former_members
class SplitTraining(SplitModel, MemoryReport, MixedPrecision, StateCarryover):
    """A model whose ranks exchange messages; a `dualml.backend.Training`.

    Args:
        backend: backend that computes the stages.
        plan: how the model is split.
        comm: communicator of the model's ranks.
        recipe: training specification.
        executor: makes the executor of the plan for this rank's stage.
        stage: this rank's stage from an earlier training, to be reused; None: make one
            (`make_stage`).
    """

    executor: Executor

    def __init__(
        self,
        backend: Backend,
        plan: SplitPlan,
        comm: Communicator,
        recipe: TrainingSpec,
        executor: Callable[[SplitPlan, Communicator, Stage], Executor] = Executor,
        stage: Stage | None = None,
    ) -> None:
        self.backend, self.plan, self.comm = backend, plan, comm
        self.stage = stage or make_stage(backend, plan, comm.rank, recipe, comm)
        self.x, self.y = recipe.x, recipe.y
        self.executor = executor(plan, comm, self.stage)
        self.shapes = plan.spec.parameters()
        self.pieces = [plan.rank_stages(rank)[1] for rank in range(comm.size)]
        self.step_count, self.scaler = 0, recipe.precision.make_scaler()
        kind = np.float64 if backend.dtype == "float64" else np.float32
        self.hidden = self.executor.hidden = recipe.make_hidden_states(kind)

    @property
    def precision_policy(self) -> Implementation:
        """Storage and arithmetic of the low-precision numbers in this rank's stage."""
        assert isinstance(self.stage, MixedPrecisionStage)  # checked by `make_stage`
        return self.stage.precision_policy

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> Any:
        """Make update ``step`` on ``batch``; return (lazy loss, share of the batch) of each of this
        rank's micro-batches with samples, an empty list unless it has the last stage."""
        self.executor.loss_scale = self.loss_scale
        losses = self.executor.run(batch, step)
        if self.scaler is None:
            self.executor.update(step)
        elif self.should_step(self.executor.all_finite()):
            self.executor.update_scaled(step, self.applied_steps(step))
        for samples, states in self.executor.pop_states():
            assert self.hidden is not None
            self.hidden.store_final_states(samples, states)
        self.step_count = step
        return losses

    def materialize_losses(self, lazy: Sequence[Any]) -> Array:
        """Return the mean losses of the batches, float64 (updates,), on every rank, from the values
        that `step` returned; a collective call."""
        own = np.zeros(len(lazy))
        if (self.executor.tp_rank == 0 or self.plan.shared) and any(lazy):
            there = [i for i, losses in enumerate(lazy) if losses]
            own[there] = self.backend.materialize_losses(
                [self.stage.combine_losses(lazy[i]) for i in there]
            )
        parts = self.comm.all_gather(self.comm.tensor(own))
        total: Array = np.sum([self.comm.numpy(part) for part in parts], axis=0)
        return total

    def micro_batch_losses(self, lazy: Any) -> Array | None:
        """Return the mean loss of each of this rank's micro-batches with samples, float64, from the
        (lazy loss, share) pairs that `step` returned; None for an empty list, without the last
        stage."""
        if not lazy:
            return None
        return np.array(
            [
                self.backend.materialize_losses([self.stage.combine_losses([one])])[0] / one[1]
                for one in lazy
            ]
        )

    def count_saved_bytes(self, on: bool) -> None:
        """Enable or disable the count of saved bytes in this rank's stage; enabling it resets the
        executor's `max_saved_bytes` and `max_in_flight`."""
        self.stage.counts_saved_bytes = on
        if on:
            self.executor.max_in_flight = self.executor.max_saved_bytes = 0

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Measure the memory of this rank; ``batch`` is ignored, and activations are those of the
        last count (`count_saved_bytes`).

        Raises:
            Unsupported: the stages cannot count their bytes.
        """
        if not isinstance(self.stage, MemoryReport):
            raise Unsupported("the stages of this backend cannot count the bytes they hold")
        kept, buffers = self.executor.max_saved_bytes, self.executor.buffer_bytes()
        return replace(self.executor.memory(), activations=kept, buckets=buffers)

    # --- looking ------------------------------------------------------------------------------

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return loss and whole unscaled gradients of ``batch`` and activations of the samples
        ``probe``, on every rank and without an update; a collective call."""
        self.executor.loss_scale = self.loss_scale
        with self.executor.timeline.pause_recording():
            losses = self.executor.run(batch, self.step_count + 1)
        gradients = self.unscale_gradients(self.assemble(self.executor.reduced_gradients()))
        self.stage.zero_grad()
        self.executor.pop_states()  # drop the states: a trace is not an update
        loss = float(self.materialize_losses([losses])[0])
        return BatchTrace(*self.capture_forward(batch, probe), loss=loss, gradients=gradients)

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Evaluate the samples ``probe`` and gather the outputs of all ranks; return the SHA-256 of
        ``batch`` and layer name → whole output, on every rank. A collective call."""
        n = len(probe)
        filled = np.resize(probe, max(n, self.stage.min_eval_batch))
        with self.executor.timeline.pause_recording():
            _, seen = self.executor.infer(lambda: self.stage.samples(filled), len(filled))
        outputs = {name: self.tensor_to_host(output)[:n] for name, (output, _) in seen.items()}
        activations: Arrays = {}
        ranks, tensor = all_gather_arrays(self.comm, outputs), self.plan.mesh.tensor
        splits = self.sliced_outputs()
        for name, _ in self.plan.spec.layers:
            owner = next(r for r, outputs in enumerate(ranks) if name in outputs)
            if name in splits:
                group = range(owner - owner % tensor, owner - owner % tensor + tensor)
                activations[name] = concat_slices([ranks[r][name] for r in group], *splits[name])
            else:
                activations[name] = ranks[owner][name]
        return batch_digest(*self.fetch_batch(batch)), activations

    def tensor_to_host(self, output: Any) -> Array:
        """Return a copy of an output as a NumPy array, in float32 if the stage computes in mixed
        precision."""
        mixed = self.executor.mixed
        array: Array = self.comm.numpy(output if mixed is None else mixed.upcast(output))
        return array

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return samples and labels of a batch, given its sample indices, on every rank, from the
        ranks that have read them; a collective call."""
        first, last = self.plan.owner(0, 0, 0), self.plan.scorer
        own = {"x": self.x[batch]} if self.comm.rank == first else {}
        own |= {"y": self.y[batch]} if self.comm.rank == last else {}
        ranks = all_gather_arrays(self.comm, own)
        return ranks[first]["x"], ranks[last]["y"]

    def sliced_outputs(self) -> dict[str, OutputSplit]:
        """Return layer name → how its output is split over ranks; layers with a whole output on a
        rank are left out."""
        views = [view for rank in range(self.comm.size) for view in self.plan.rank_stages(rank)[0]]
        items = [item for view in views for item in view.items]
        segments = [item for item in items if isinstance(item, Segment)]
        scatters = [x for x in items if isinstance(x, ParallelOp) and x.kind == "scatter"]
        here = {pair.after: POSITION_SLICES[self.plan.shared] for pair in scatters}
        return here | {name: split for one in segments for name, split in one.split.items()}

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y`` and the predicted classes in the shape of ``y``,
        broadcast to every rank from one of the last stage; a collective call."""
        filled = np.resize(x, (max(len(x), self.stage.min_eval_batch), *x.shape[1:]))
        with self.executor.timeline.pause_recording():
            logits, _ = self.executor.infer(lambda: self.stage.inputs(filled), len(filled))
        root = self.plan.scorer
        packed = np.zeros(1 + y.size)
        if self.comm.rank == root:
            loss, predicted = self.stage.evaluate(logits, self.stage.targets(y))
            packed[0], packed[1:] = loss, predicted.ravel()
        packed = self.comm.numpy(self.comm.broadcast(self.comm.tensor(packed), root))
        return float(packed[0]), packed[1:].astype(np.int64).reshape(y.shape)

    # --- what it holds ----------------------------------------------------------------------------

    def assemble(self, parts: Mapping[str, Array]) -> Arrays:
        """All-gather ``parts``, this rank's shards by name, and return whole arrays by name; a
        collective call."""
        return assemble_parameters(all_gather_arrays(self.comm, parts), self.pieces, self.shapes)

    def weights(self) -> Arrays:
        """Return the whole parameters by canonical name, on every rank; a collective call."""
        return self.assemble(self.stage.weights())

    def state(self) -> dict[str, Arrays]:
        """Gather the optimizer state of all ranks; return state key → parameter name → whole array,
        with the loss scaler's and carried hidden states. A collective call."""
        state = self.executor.state()
        flat = {f"{slot}/{name}": a for slot, named in state.items() for name, a in named.items()}
        slots: dict[str, list[Arrays]] = {}
        for rank, arrays in enumerate(all_gather_arrays(self.comm, flat)):
            for key, array in arrays.items():
                slot, name = key.split("/", 1)
                slots.setdefault(slot, [{} for _ in self.pieces])[rank][name] = array
        own = {
            slot: assemble_parameters(parts, self.pieces, self.shapes)
            for slot, parts in slots.items()
        }
        return own | self.scaler_state() | self.carried_state()

    def carried_state(self) -> dict[str, Arrays]:
        """Return the carried states of all streams, on every rank, as a part of `state`; empty for
        a stateless model. A collective call otherwise."""
        if self.hidden is None:
            return {}
        mine = {
            name
            for view in self.plan.rank_stages(self.comm.rank)[0]
            for name in self.layer_names(view)
        }
        tables = {name: t for name, t in self.hidden.tables.items() if name in mine}
        ranks = all_gather_arrays(
            self.comm, {**tables, FRESH: self.hidden.fresh.astype(np.float32)}
        )
        fresh = [arrays.pop(FRESH) > 0 for arrays in ranks]
        merge_hidden_states(self.hidden, ranks, fresh)
        return {**self.hidden.state()}

    def layer_names(self, view: StageView) -> list[str]:
        """Return the layer names of the stage of ``view``."""
        return self.plan.stages[view.stage]

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore this rank's shards of whole ``weights`` and ``state`` as after update ``step``;
        no rank communicates."""
        pieces = self.pieces[self.comm.rank]

        def slice_arrays(arrays: Mapping[str, Array]) -> Arrays:
            return {name: piece.extract(arrays[name]) for name, piece in pieces.items()}

        state = state if self.hidden is None else self.hidden.load(state)
        own = {slot: slice_arrays(named) for slot, named in self.pop_scaler_state(state).items()}
        self.executor.load(slice_arrays(weights), own, self.applied_steps(step))
        self.step_count = step

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace this rank's shards of the parameters by those that ``fn`` returns; its argument
        and result have the keys ``name[part]``, with ``part`` the number of the shard. No rank
        communicates."""
        own, pieces = self.stage.weights(), self.pieces[self.comm.rank]
        keys = {f"{name}[{pieces[name].part}]": name for name in own}
        moved = fn({key: own[name] for key, name in keys.items()})
        loaded = {name: moved[key] for key, name in keys.items()}
        self.executor.load(loaded, self.executor.state(), self.applied_steps(self.step_count))


def make_stage(
    backend: Backend,
    plan: SplitPlan,
    rank: int,
    recipe: TrainingSpec,
    comm: Communicator | None = None,
) -> Stage:
    """Make the part of the model that ``rank`` holds.

    Args:
        comm: communicator of all ranks, needed by stages on several devices of a process.

    Raises:
        Unsupported: this backend does not train parts of models, or not in the recipe's precision,
            with its recomputation or hidden states, with these devices, or with positions sharded
            as the plan wants; ``context`` goes with no low precision at all.
    """
    segments, first, last = rank_segments(plan, rank)
    if plan.engine == "devices":
        assert comm is not None
        devices = shift_devices(plan.devices, plan.mesh.coordinates(rank)[0])
        placing = backend.require_capability(DevicePlacement)
        stage: Stage = placing.placed_stage(segments, recipe, devices, comm)  # type: ignore[assignment]
    else:
        stage = backend.require_capability(PipelineStages).stage(
            segments, recipe, first=first, last=last
        )
    needs = {
        MixedPrecisionStage: recipe.precision.is_low,
        ActivationRecomputation: bool(recipe.recompute),
        BlockwiseAttention: plan.shared == "context",
        ActivationResharding: plan.regather,
        StateCarryover: recipe.spec.stateful,
    }
    if plan.shared == "context" and recipe.precision.is_low:
        raise Unsupported("attention round a ring is in float32; use a recipe without precision")
    for kind, needed in needs.items():
        if needed and not isinstance(stage, kind):
            raise Unsupported(f"this backend cannot {kind.description}")
    return stage


def rank_segments(plan: SplitPlan, rank: int) -> tuple[list[Segment], bool, bool]:
    """Return all segments of a rank, in model order, whether it has the model's first stage, and
    whether it has the last."""
    views = plan.rank_stages(rank)[0]
    segments = [item for view in views for item in view.items if isinstance(item, Segment)]
    return segments, views[0].stage == 0, views[-1].stage == len(plan.stages) - 1
