"""Executor of one rank in an update of a split model: its program, messages and collectives."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.streams import HiddenStates, extra_inputs
from dualml.backend import MemoryReport, MemoryUsage, Segment
from dualml.backend.stage import Arrays, Stage, Tensor, Values
from dualml.parallel.aggregation.straggler import pause
from dualml.parallel.split.mailbox import Key, Mailbox
from dualml.parallel.split.plan import SplitPlan, StageView
from dualml.parallel.split.rank import PipelineRank
from dualml.parallel.split.schedule import Action
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.tensor_parallel import ParallelOp, RingAttentionOp
from dualml.parallel.split.tensor_parallel_rank import make_group

Index = NDArray[np.int64]


class Executor(PipelineRank):
    """Executes a `SplitPlan` as one of its ranks.

    Attributes:
        seed: seed of the trial, from which dropout masks and orders are drawn.
        max_in_flight: largest number of micro-batches so far that were between their forward and
            backward pass at the same time.
        max_saved_bytes: largest number of bytes saved for backward passes while the stage counted
            them.
        loss_scale: loss scale of the current update.
        hidden: states that stateful layers carry over from batch to batch; None without such
            layers.
        dp_group: ranks that hold the same parameters; None if there is no other.
        tied_group: ranks that hold a parameter tied across stages; None if there is no other.
        inbox: messages of the current update.
        micro_batches: sample indices of each micro-batch of the current update.
        batch_shares: share of each micro-batch in the batch.
        in_flight: (stage, micro-batch) pairs whose forward pass is done and backward pass is not.
    """

    def __init__(self, plan: SplitPlan, comm: Communicator, stage: Stage) -> None:
        super().__init__(plan, comm, stage)
        self.program = plan.program(self.rank)
        self.dp_group = make_group(comm, plan.same_parameters())
        self.tied_group = make_group(comm, plan.tied_groups())
        pieces, start = plan.rank_stages(self.rank)[1], 0
        #: Parameter → (start, stop) of its elements in the flat gradients.
        self.spans: dict[str, tuple[int, int]] = {}
        for name, piece in pieces.items():
            self.spans[name] = start, start + math.prod(piece.local_shape)
            start = self.spans[name][1]
        #: Groups that share some parameters, with the names whose gradients they sum.
        self.partial_groups = list[tuple[Communicator, list[str]]]()
        if (
            self.tp_group is not None and plan.shared
        ):  # each rank has gradients from its own positions
            own = [name for name, piece in pieces.items() if piece.parts == 1]
            if own:  # the same on all ranks of the group
                self.partial_groups.append((self.tp_group, own))
        if self.tied_group is not None:
            self.partial_groups.append(
                (self.tied_group, [name for name in pieces if name in plan.tied_params])
            )
        self.max_in_flight = self.max_saved_bytes = self.seed = 0
        self.loss_scale = 1.0
        self.hidden: HiddenStates | None = None

    # --- an update ----------------------------------------------------------------------------

    def run(self, batch: Index, step: int) -> list[tuple[Any, float]]:
        """Run forward and backward passes of the samples ``batch`` and reduce the gradients,
        without an update. Return (lazy loss, share of the batch) for each micro-batch with samples
        on ranks of the last stage, otherwise an empty list."""
        self.begin(batch, step)
        losses = [self.run_action(action) for action in self.program]
        self.end()
        self.reduce()
        return [loss for loss in losses if loss is not None]

    def begin(self, batch: Index, step: int) -> None:
        """Begin update ``step``: set the gradients to zero, split the samples ``batch`` of all
        replicas into this replica's micro-batches and post the first receives."""
        self.step_count = step
        self.timeline.begin_step(step)
        self.stage.zero_grad()
        samples = np.array_split(batch, self.plan.mesh.data)[self.dp_rank]
        self.micro_batches: list[Index] = np.array_split(samples, self.plan.micro_batches)
        parts = 1 if self.own_positions is None else self.own_positions.parts
        self.batch_shares = [len(part) / len(batch) / parts for part in self.micro_batches]
        self.comm.delay = self.message_delay if self.slow is not None else None
        if self.tp_group is not None and self.rings:
            self.tp_group.delay = self.comm.delay
        self.ring_saves.clear()
        self.saved_shards.clear()
        self.inbox = Mailbox(self.comm, self.incoming_messages(), self.receive_buffer)
        self.in_flight: set[tuple[int, int]] = set()

    def run_action(self, action: Action) -> tuple[Any, float] | None:
        """Run one action of the program. Return the lazy loss and its share of the batch; None if
        the action yields no loss or its micro-batch has no samples."""
        if not len(self.micro_batches[action.micro]):
            return None
        view, at = self.views[action.stage], (action.stage, action.micro)
        if action.kind == "F":
            loss = self.forward(view, action.micro, self.step_count)
            self.in_flight.add(at)
            self.max_in_flight = max(self.max_in_flight, len(self.in_flight))
            if self.stage.counts_saved_bytes:
                self.max_saved_bytes = max(
                    self.max_saved_bytes,
                    self.stage.saved_activation_bytes() + self.local_saved_bytes(),
                )
        else:
            loss = self.backward(view, action.micro)
            self.in_flight.remove(at)
        return None if loss is None else (loss, self.batch_shares[action.micro])

    def end(self) -> None:
        """Wait until every message of the update has been sent, and end the straggler's delays."""
        with self.timeline.record("send"):
            self.inbox.close()
        self.comm.delay = None
        if self.tp_group is not None:
            self.tp_group.delay = None

    def incoming_messages(self) -> dict[int, list[tuple[Key, int, int]]]:
        """Return the messages that each other rank will send to this one, in sending order: key,
        the stage whose output shape the message has, and number of samples; none for micro-batches
        without samples."""
        messages: dict[int, list[tuple[Key, int, int]]] = defaultdict(list)
        mesh = self.plan.mesh
        replica = {mesh.rank(self.dp_rank, place, self.tp_rank) for place in range(mesh.pipeline)}
        for peer in sorted(replica - {self.rank}):
            for action in self.plan.program(peer):
                stage, micro = action.stage, action.micro
                size = len(self.micro_batches[micro])
                to = stage + 1 if action.kind == "F" else stage - 1
                if size and 0 <= to <= self.last_stage and self.owner_rank(to, micro) == self.rank:
                    messages[peer].append(((action.kind, stage, micro), min(stage, to), size))
        return messages

    def forward(self, view: StageView, micro: int, step: int) -> Any:
        """Run the forward pass of a micro-batch through the stage of ``view``, receiving its input
        and sending its output; return the lazy loss in the last stage, else None."""
        stage, begin = view.stage, time.perf_counter()
        if stage == 0:
            values: Values = (self.stage.samples(self.micro_batches[micro]),)
        else:
            values = (self.receive("F", stage - 1, micro),)
            begin = time.perf_counter()
        masks = self.side_inputs(view, micro, step)
        loss, number = None, 0
        with self.timeline.record("F", stage, micro):
            for item in view.items:
                if isinstance(item, ParallelOp):
                    if self.plan.regather and item.kind == "collect":
                        self.saved_shards[view.segments[number], micro] = item, values[-1]
                    values = self.communicate(item, values, stage, micro)
                    continue
                if isinstance(item, RingAttentionOp):
                    values = (*values[:-1], self.ring_forward(item, values[-1], stage, micro))
                    continue
                segment, own = view.segments[number], masks.get(number, ())
                number += 1
                if stage == self.last_stage and number == len(view.segments):
                    labels = self.shard_sequence(self.stage.labels(self.micro_batches[micro]))
                    loss = self.stage.loss(micro, values, labels, own)
                else:
                    values = self.stage.forward(segment, micro, values, own)
                    self.free_gathered(segment, micro)
            self.apply_compute_delay(begin)
        if stage < self.last_stage:
            self.send("F", stage, micro, values[-1], self.owner_rank(stage + 1, micro))
        return loss

    def backward(self, view: StageView, micro: int) -> Any:
        """Run the backward pass of a micro-batch through the stage of ``view``, receiving and
        sending gradients; return the lazy loss in the model's last stage, else None."""
        stage, loss = view.stage, None
        gradients: Values | None = None
        if stage < self.last_stage:
            gradients = (self.receive("B", stage + 1, micro),)
        begin, number = time.perf_counter(), len(view.segments)
        with self.timeline.record("B", stage, micro):
            for item in reversed(view.items):
                if isinstance(item, ParallelOp) and item.kind == "take":
                    continue
                if isinstance(item, RingAttentionOp):
                    assert gradients is not None
                    flow = self.ring_backward(item, gradients[-1], stage, micro)
                    gradients = (*gradients[:-1], flow)
                    continue
                if isinstance(item, ParallelOp):
                    assert gradients is not None
                    gradients = self.communicate_back(item, gradients, stage, micro)
                    continue
                number -= 1
                if gradients is None:
                    loss, gradients = self.stage.loss_backward(
                        micro, self.batch_shares[micro] * self.loss_scale
                    )
                else:
                    self.restore_gathered(view.segments[number], micro, stage)
                    gradients = self.stage.backward(view.segments[number], micro, gradients)
            self.apply_compute_delay(begin)
        if stage:
            assert gradients is not None
            self.send("B", stage, micro, gradients[-1], self.owner_rank(stage - 1, micro))
        return loss

    def reduce(self) -> None:
        """All-reduce gradients among the ranks that hold the same parameters and among those that
        share some; nothing if there are none."""
        if self.dp_group is None and not self.partial_groups:
            return
        flat = self.stage.flatten_gradients()
        with self.timeline.record("reduce", nbytes=self.reduced_bytes(self.comm.nbytes(flat))):
            if self.dp_group is not None:
                flat = self.all_reduce_sum(self.dp_group, flat)
            flat = self.reduce_partial_groups(flat)
        self.stage.assign_flat_gradients(flat)

    def reduce_partial_groups(self, flat: Tensor) -> Tensor:
        """Return ``flat`` with the gradients of the parameters of `partial_groups` summed over
        their groups; ``flat`` may be overwritten. All ranks of those groups call it."""
        for group, names in self.partial_groups:
            own = [self.comm.slice(flat, *self.spans[name]) for name in names]
            total, at = self.all_reduce_sum(group, self.stage.concat(own, 0)), 0
            for name in names:
                start, stop = self.spans[name]
                part = self.comm.slice(total, at, at := at + stop - start)
                flat = self.comm.write(flat, start, part, "put")
        return flat

    def reduced_bytes(self, nbytes: int) -> int:
        """Return how many bytes of gradients take part in this rank's sums over groups, if all its
        gradients have ``nbytes`` bytes; those in two sums count twice."""
        every = max((stop for _, stop in self.spans.values()), default=1)
        names = [name for _, some in self.partial_groups for name in some]
        some = sum(stop - start for start, stop in map(self.spans.__getitem__, names))
        return some * nbytes // every + (0 if self.dp_group is None else nbytes)

    def buffer_bytes(self) -> int:
        """Return the bytes of the flat gradient copies used by the all-reduce; 0 if this rank
        reduces nothing."""
        none = self.dp_group is None and not self.partial_groups
        return 0 if none else self.comm.nbytes(self.stage.flatten_gradients())

    def all_finite(self) -> bool:
        """Return whether all gradients on all ranks are finite, so that all ranks step or skip
        together; all ranks call it, in mixed precision only."""
        own = self.comm.tensor(np.array([self.is_finite()], np.float32))
        return bool(self.comm.numpy(self.comm.all_reduce(own, "min"))[0])

    def is_finite(self) -> bool:
        """Return whether all gradients of this rank are finite; only in mixed precision."""
        assert self.mixed is not None
        return self.mixed.has_finite_gradients()

    def update(self, step: int) -> None:
        """Apply update ``step`` of the optimizer to this rank's parameters, from the reduced
        gradients."""
        with self.timeline.record("update"):
            self.stage.update(step)

    def update_scaled(self, step: int, made: int) -> None:
        """Apply update ``step`` with gradients of the loss times `loss_scale`, which is divided
        out; ``made`` is its number among the updates that were not skipped. Only in mixed
        precision."""
        assert self.mixed is not None
        with self.timeline.record("update"):
            self.mixed.update_scaled(step, made, self.loss_scale)

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Restore this rank's ``weights`` and optimizer ``state`` as after update ``step``; arrays
        have the shapes of this rank's shards."""
        self.stage.load(weights, state, step)

    def reduced_gradients(self) -> Arrays:
        """Return copies of the reduced gradients, with the shapes of this rank's shards; in mixed
        precision they are times `loss_scale`."""
        return self.stage.gradients()

    def state(self) -> dict[str, Arrays]:
        """Return a copy of the optimizer state: state key → parameter → array."""
        return self.stage.state()

    def memory(self) -> MemoryUsage:
        """Return the measured bytes of this rank's weights, gradients and optimizer state."""
        assert isinstance(self.stage, MemoryReport)  # checked by `SplitTraining.memory`
        return self.stage.measure_memory()

    # --- messages ---------------------------------------------------------------------------------

    def receive(self, kind: str, stage: int, micro: int) -> Tensor:
        """Receive the activation (``F``) or gradient (``B``) of a micro-batch that the given,
        sending stage produced; it comes at once if this rank holds that stage."""
        peer = self.owner_rank(stage, micro)
        with self.timeline.record("receive", stage, micro, kind == "B"):
            x = self.inbox.receive((kind, stage, micro), peer)
            return self.from_wire(x, peer != self.rank and self.is_low_precision(kind, stage))

    def send(self, kind: str, stage: int, micro: int, x: Tensor, peer: int) -> None:
        """Start to send the activation (``F``) or gradient (``B``) that ``stage`` produced for a
        micro-batch to rank ``peer``, which may be this rank itself."""
        x = self.to_wire(x, peer != self.rank and self.is_low_precision(kind, stage))
        nbytes = self.comm.nbytes(x) if peer != self.rank else 0
        with self.timeline.record("send", stage, micro, kind == "B", nbytes):
            self.inbox.send((kind, stage, micro), x, peer)

    def is_low_precision(self, kind: str, stage: int) -> bool:
        """Return whether the activation (``F``) or gradient (``B``) that ``stage`` sends is in the
        low-precision type; a gradient has the type of the activation that came the other way."""
        return self.lower[stage - (kind == "B")]

    def message_delay(self, sent: int, received: int) -> float:
        """Return the seconds by which the straggler delays an exchange of this many bytes ``sent``
        and ``received`` by this rank; 0 on other ranks. Only if there is a straggler."""
        assert self.slow is not None
        return self.slow.transfer_delay(self.rank, sent, received, self.step_count)

    def apply_compute_delay(self, begin: float) -> None:
        """Sleep for the straggler's compute delay if this rank is the straggler; the pass began at
        ``begin``, seconds of ``time.perf_counter``."""
        if self.slow is not None:
            spent = time.perf_counter() - begin
            pause(self.slow.compute_delay(self.rank, spent, self.step_count, self.seed))

    def side_inputs(self, view: StageView, micro: int, step: int) -> Mapping[int, Sequence[Any]]:
        """Return the additional inputs of each segment, by its position in the stage: dropout masks
        and carried states, sliced to this rank's shard; empty for a model that has neither."""
        if not self.plan.spec.dropout_names and self.hidden is None:
            return {}
        whole = extra_inputs(
            self.plan.spec, self.seed, step, self.micro_batches[micro], self.hidden
        )

        def shard_input(name: str, segment: Segment) -> NDArray[np.float32]:
            mask = whole[name]
            if name in segment.split:
                axis, blocks, mirrored = segment.split[name]
                part = (self.tp_rank, self.plan.mesh.tensor)
                mask = TensorShard(mask.shape, axis, *part, blocks, mirrored).extract(mask)
            return np.ascontiguousarray(mask)

        segments = [item for item in view.items if isinstance(item, Segment)]
        return {
            number: [shard_input(name, segment) for name, _ in segment.layers if name in whole]
            for number, segment in enumerate(segments)
        }

    def pop_states(self) -> list[tuple[Index, Arrays]]:
        """Return and clear the final states of this rank's stateful layers in the last update:
        (positions of the samples, layer → states) for each micro-batch; empty without such
        layers."""
        if self.hidden is None:
            return []
        return [
            (self.micro_batches[micro], states) for micro, states in self.stage.pop_states().items()
        ]
