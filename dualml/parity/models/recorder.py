"""The framework-neutral part of a recorder: what is recorded in a step, how steps are repeated.

`dualml_torch.record.Recorder` and `dualml_ms.record.Recorder` implement how their framework lists,
hooks, copies and restores. A recorder does not decide how a step is made. It either watches one
(`Recorder.step`), or calls a function that makes one, and calls it again with weights moved by
units in the last place (`Recorder.run`). Only the latter measures the width of rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parity.envelope import perturb, perturb_in_place
from dualml.parity.models.gap import LARGE
from dualml.parity.models.model_access import ModelAccess
from dualml.parity.models.model_ref import error_reason, user_line
from dualml.parity.models.operations import Operation, Tape
from dualml.parity.models.optimizer_facts import OptimizerStart
from dualml.parity.models.recorder_checks import check_claim, check_unchanged, claim_folder
from dualml.parity.models.snapshots import ShelvedTensor, SnapshotFile
from dualml.parity.models.step_arrays import (
    ComparedStep,
    OperationArrays,
    StepArrays,
    StoredStep,
    measure_draw,
    measure_repetition,
)
from dualml.parity.models.surroundings import Surroundings
from dualml.parity.models.trace import (
    OUTPUT,
    Trace,
    array_key,
    hash_array,
    iter_tensors,
    join_hashes,
)
from dualml.parity.models.trace_files import TraceArrays
from dualml.parity.ranks.backward_passes import BackwardPasses
from dualml.parity.ranks.member import WAIT_S, RankMember

#: Draws: weights moved by 1, 2 and 4 units in the last place.
DRAWS = 3
#: Maximum relative distance of two runs of one step that still counts as reproducible.
REPRODUCIBLE_RTOL = 1e-5
#: Size of the random offsets that make weights distinguishable, and how many elements of a weight
#: get one.
UNLIKE, UNLIKE_ELEMENTS = 1e-3, 1 << 16
#: Arrays of each kind of an optimizer's state that are read to see whether it begins with zeros.
START_ARRAYS = 16


@keep_former_members
class Recorder(ModelAccess):
    """A recorder of the first steps of a training script, see `dualml.parity.models.trace`.

    Args:
        model: the whole model; its outputs and those of all its modules are recorded.
        folder: for ``trace.safetensors`` and ``trace.json``, which are complete after every step; a
            large trace is written there as it arises, see `dualml.parity.models.trace_files`. None
            keeps the trace in memory.
        optimizer: the optimizer whose state is recorded after every update.
        steps: number of steps to record; later ones run unchanged.
        draws: how often `run` repeats each step with weights moved by units in the last place, to
            measure the effect of rounding; 0 does not measure it.
        seed: seed of the draws.
        group: the ranks that train together, as the framework names them, or True for all of them.
            Each records its own part, and rank 0 puts the parts together in ``folder``, see
            `dualml.parity.ranks.gathering`. Every rank makes its recorder at the same time.

    Attributes:
        wait: with ``group``, seconds that rank 0 waits for the next step of another rank; 0 leaves
            the parts as they are, for ranks without a common folder.

    Raises:
        UserError: not a model of this framework, ``steps`` < 1, ``draws`` < 0, an unknown
            ``group``, or one without a ``folder``.
    """

    wait: float = WAIT_S

    def __init__(
        self,
        model: Any,
        folder: str | Path | None,
        optimizer: Any = None,
        *,
        steps: int = 3,
        draws: int = DRAWS,
        seed: int = 0,
        group: Any = None,
    ) -> None:
        if steps < 1 or draws < 0:
            raise UserError(f"steps >= 1 and draws >= 0; received {steps} and {draws}")
        self.check(model)
        self.model, self.optimizer = model, optimizer
        self.folder = Path(folder) if folder else None
        self.limit, self.draws, self.seed = steps, draws, seed
        #: This process among the ranks that record together; None: it records alone.
        self.member: RankMember | None = None
        if group is not None:
            self.model = self.unwrap_model(model)
            self.member = RankMember(self.join_group(group), self.folder, steps)
            self.folder = self.member.folder
        self.writer = claim_folder(self.folder)
        #: Whether `run` is repeating a step, so that the trace is not complete yet.
        self.repeats_step = False
        #: Whether no step is drawn, because the first one does not repeat itself on some rank.
        self.skips_draws = False
        #: Losses and their weights that this step has shown so far.
        self.losses: list[tuple[float, float]] = []
        self.passes = BackwardPasses(self.note, {}, keeps_all=False)
        self.trace = Trace(self.framework, self.environment(), self.tensors(), self.modules())
        self.files = TraceArrays(self.folder) if self.folder else None
        if self.files is not None:
            self.trace.arrays = self.files
        self.draw_states: dict[int, Any] = {}
        #: Snapshot of the end of the last step: what differs from it was changed between steps.
        self.last_end: Any = None
        #: Whether the model is put back after the last step, too.
        self.restores_last_step = True
        self.step_arrays: StepArrays | None = None
        self.stored_step = StoredStep(0, {})
        self.snapshot_file: SnapshotFile | None = None
        #: The trace that has the initial weights.
        self.begun: Trace | None = None
        self.tape: Tape | None = None
        #: In a draw: generator and units for the rounding of what is computed from the outputs.
        self.rounding: tuple[np.random.Generator, int] | None = None
        self.output_seen = False
        #: The type in whose units weights are moved, see `dualml.algorithms.precision`.
        self.precision = "fp32"
        #: Whether the model is compiled: then only its own outputs can be recorded.
        self.compiled = False
        #: Whether the framework's own generators draw, seeded in every step, and not the RNG that
        #: both frameworks share: inside of a compiled model they cannot be replaced.
        self.seeded = False
        #: Whether fused attention runs in the framework's kernel, as one call, and not as the calls
        #: of a port that has no such kernel.
        self.keeps_attention = False

    # Called by a script.
    @contextlib.contextmanager
    def step(self, *inputs: Any) -> Iterator[Recorder]:
        """Record what happens within the context: one forward, one backward, one update.

        The trace is then written to the folder. A step that raises is recorded up to there, and the
        error passes. After the last step to record, nothing is recorded.

        Args:
            inputs: the tensors that the step trains on, targets included; only their digests are
                kept, with ``group`` also their values.

        Raises:
            UserError: a step is being recorded already, the model's parameters are others than when
                the recorder was made, or the trace cannot be written.
        """
        if self.is_done:
            yield self
            return
        if self.step_arrays is not None:
            raise UserError(
                "a step is being recorded already: use one recorder.step() or recorder.run() for "
                "each update, and none inside of another"
            )
        self.begin_step(inputs)
        noted = self.stored_step = StoredStep(len(self.trace.inputs), self.trace.arrays)
        try:
            self.store_inputs(inputs, noted)
            with self.record_arrays(inputs, noted):
                yield self
        except Exception as error:  # the arrays recorded so far show where it failed
            self.check_files()
            self.trace.raised = error_reason(error) + user_line(error, self.skip)
            self.store_step(noted)
            raise
        self.store_step(noted)
        self.trace.steps += 1
        self.write()

    def saw(
        self,
        *,
        loss: Any = None,
        gradients: Any = None,
        weight: float | None = None,
        local_gradients: Any = None,
    ) -> None:
        """Record values that hooks cannot see; ignored outside of a recorded step.

        Args:
            loss: the mean loss of this step, a scalar.
            gradients: one per trained parameter, of its shape, in their order or by name. Not
                needed with PyTorch, which keeps them.
            weight: weight (>= 0) of this loss in the mean of the whole batch, such as its number of
                tokens. Losses with weights of several micro-batches, and of several ranks, are
                averaged; without a weight the last loss counts, and all ranks count the same.
            local_gradients: gradients of one backward pass, given like ``gradients``, before
                micro-batches are added up or ranks exchange theirs. Not needed with PyTorch, whose
                hooks see them.

        Raises:
            UserError: a weight below 0 or infinite, or not one gradient for each trained parameter.
        """
        if self.step_arrays is None:
            return  # after the last recorded step
        if loss is not None:
            value = self.array(loss) if self.is_tensor(loss) else np.asarray(loss)
            self.note_loss(value.astype(np.float64).reshape(()), weight)
        if local_gradients is not None:
            for name, value in self.gradients_by_name(local_gradients).items():
                self.note_pass(name, value)
        if gradients is not None:
            self.note_gradients(self.gradients_by_name(gradients))

    def note_loss(self, value: NDArray[np.float64], weight: float | None) -> None:
        """Record the loss of a micro-batch in the current step.

        Args:
            value: the loss, a float64 scalar.
            weight: its weight; then the weighted mean of all losses of the step so far is recorded.
                None: ``value`` replaces the loss recorded before.

        Raises:
            UserError: a weight below 0 or infinite.
        """
        assert self.step_arrays is not None
        if weight is not None:
            if not 0 <= weight < float("inf"):
                raise UserError(f"weight must be a number >= 0; received {weight}")
            self.losses.append((float(value), float(weight)))
            parts = np.array(self.losses)
            self.step_arrays.add("weight/losses", parts)
            if total := parts[:, 1].sum():
                value = np.asarray(parts[:, 0] @ parts[:, 1] / total)
        self.step_arrays.add("loss/loss", value)

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Make one step by calling ``function(*inputs)``, and measure how rounding affects it.

        The function makes one whole update and reports its loss with `saw`. It is called once for
        the script, once more in the first step (to check that it is reproducible), and, if it is,
        once for each draw. Afterwards everything is as the first call left it: model, optimizer,
        and the schedules, scalers, counters and other models that the function refers to
        (`Surroundings`). After the last step to record, the function is only called. With ``group``
        all ranks call it.

        Returns:
            What the first call returned.
        """
        if self.is_done:
            return function(*inputs)
        self.record_start()
        if self.step_arrays is None:
            self.repeats_step = True
        before = self.capture_surroundings(function)
        start = self.take_snapshot({} if self.trace.inputs else self.recorded_start())
        with self.step(*inputs):
            result = function(*inputs)
        step, last_end = self.trace.steps, self.last_end
        leave = step == self.limit and not self.restores_last_step
        after = None if leave else self.capture_surroundings(function)
        end = None if leave else self.take_snapshot(self.recorded_end())
        try:
            if step == 1:
                self.restore(start)
                before.restore()
                run = ComparedStep(step, self.trace.arrays, measure_repetition)
                self.repeat_step(run, function, inputs)
                first = self.stored_step
                keys = first.keys(operations=False) + first.keys(operations=True)
                self.trace.random = self.find_nondeterminism(keys, run.distances)
                self.trace.repeated = True
                self.skips_draws = self.trace.random is not None
                if self.member is not None:  # or some ranks would wait for the others' draws
                    self.skips_draws = self.member.agree(self.skips_draws)
            if not self.skips_draws:
                for draw in range(self.draws):
                    self.restore(self.draw_states.pop(draw, start))
                    if last_end is not None:
                        self.adopt_changes(last_end, start)
                    before.restore()
                    self.run_draw(draw, function, inputs)
        finally:
            self.repeats_step = False
            if after is not None:
                self.restore(end)
                after.restore()
        self.last_end = None if step == self.limit else end
        self.write()
        return result

    def write(self) -> None:
        """Write the trace to the folder, if there is one; with several ranks, also hand this rank's
        part over, and on rank 0, once all steps are recorded, wait for the others and gather."""
        if self.files is not None:
            check_claim(self.folder, self.writer)
            self.files.write()
            self.trace.write_header(self.files.folder)
        if self.member is not None:
            complete = self.is_done and not self.repeats_step
            self.member.write(self.trace, complete or self.trace.raised is not None, self.wait)

    @property
    def is_done(self) -> bool:
        """Whether all ``steps`` steps are recorded."""
        return self.trace.steps >= self.limit

    def trace_forward(self, forward: Callable[..., Any], inputs: Sequence[Any]) -> list[Operation]:
        """Return the operations of a forward pass, in order, and restore the model; empty if the
        pass fails. Nothing is added to the trace.

        The weights are moved by different amounts for this pass, because otherwise scales that are
        all 1 would look like the same tensor.

        Args:
            forward: called with all ``inputs`` to run the forward pass.
        """
        start, rng = self.take_snapshot(self.recorded_start()), np.random.default_rng(self.seed)
        for name, tensor in self.named_tensors().items():
            if is_finite_float(self.view(tensor)):
                shared = self.shared_view(tensor)
                value = self.array(tensor) if shared is None else shared
                first = value.reshape(-1)[:UNLIKE_ELEMENTS]
                first[:] = first + UNLIKE * rng.standard_normal(first.shape)
                if shared is None:
                    self.load({name: value})
        self.tape = tape = self.make_tape()
        tape.arrays = OperationArrays(None)
        try:
            for i, one in enumerate(inputs):
                if self.is_tensor(one):
                    tape.register(one, f"input:{i}")
            with contextlib.suppress(Exception):  # the first step reports it
                forward(*inputs)
                return tape.calls
            return []
        finally:
            self.tape = None
            self.restore(start)

    # Recording.
    def record_start(self) -> None:
        """Record the initial weights, and without a group of ranks the optimizer's settings and
        state, unless the trace has them already."""
        if self.begun is self.trace:
            return
        self.begun, stored, hashes = self.trace, StoredStep(0, self.trace.arrays), {}
        for name, tensor in self.named_tensors().items():
            self.note_place(f"parameters/{name}", tensor)
            value = self.array(tensor) if stored.needs_copy else self.view(tensor)
            stored.add(f"parameters/{name}", value)
            if self.files is not None:
                hashes[name] = hash_array(value)
        self.trace.weights_digest = join_hashes(hashes) if hashes else ""
        if self.optimizer is not None and self.member is None:
            self.trace.groups, self.trace.start = self.parameter_groups(), self.find_start()

    def find_start(self) -> OptimizerStart:
        """Return how many updates the optimizer has made, and slot → value of each kind of state
        that is not all zero: its single value, or None if values differ. Only the first
        `START_ARRAYS` arrays are read."""
        slots: dict[str, float | None] = {}
        for slot, values in self.optimizer_state().items():
            some = islice(values.values(), START_ARRAYS)
            first = next((v for v in map(self.as_view, some) if v.any()), None)
            if first is not None and np.isfinite(first).all():
                low, high = float(first.min()), float(first.max())
                slots[slot] = low if low == high else None
        return OptimizerStart(updates=self.count_updates(), slots=slots)

    def begin_step(self, inputs: Sequence[Any]) -> None:
        """Record the initial weights before the first step, and append the digests of a step's
        inputs to the trace; raise `UserError` if the model's trained parameters are no longer those
        that the recorder was made with."""
        if not self.trace.inputs:
            self.record_start()
        check_unchanged(self.trace.tensors, self.tensors())
        arrays = [self.as_array(one) for one in inputs]
        self.trace.inputs.append([hash_array(one) for one in arrays if one is not None])

    def store_inputs(self, inputs: Sequence[Any], noted: StepArrays) -> None:
        """Add a step's inputs to ``noted`` if several ranks record, because rank 0 joins them to
        the whole inputs; do nothing without a group."""
        if self.member is None:
            return
        arrays = [self.as_array(one) for one in inputs]
        for number, array in enumerate(one for one in arrays if one is not None):
            # Under no name: a repetition of the step has the same inputs.
            noted.accept_array(array_key("input", noted.step, str(number)), array)

    def as_array(self, value: Any) -> NDArray[Any] | None:
        """Return a tensor, array or number as an array of its shape; None for anything else."""
        if self.is_tensor(value):
            return self.array(value)
        return np.asarray(value) if isinstance(value, np.ndarray | int | float) else None

    @contextlib.contextmanager
    def record_arrays(self, inputs: Sequence[Any], noted: StepArrays) -> Iterator[None]:
        """Add one step's arrays to ``noted`` as they arise in the block.

        In the block these are the modules' outputs, in execution order, and what the user passes to
        `saw`. At its end they are the gradients (if `saw` got none), the new weights and the
        optimizer's state. In the first step, outputs of operations are added, unless several ranks
        record. If the block raises, nothing is added at its end.
        """
        calls: dict[str, int] = {}
        self.step_arrays, self.output_seen, self.losses = noted, False, []
        sizes = {one.name: prod(one.shape) for one in self.trace.tensors if one.trained}
        self.passes = BackwardPasses(self.note, sizes, keeps_all=self.member is not None)
        # Operations of the first step: later ones are the same calls with other numbers. Those of a
        # rank are no part of the whole model's.
        alone = self.member is None
        self.tape = self.make_tape() if alone and len(self.trace.inputs) == 1 else None
        if self.tape is not None:
            self.tape.arrays = OperationArrays(noted)
            for i, one in enumerate(inputs):
                if self.is_tensor(one):
                    self.tape.register(one, f"input:{i}")

        def record_output(module: str, output: Any) -> None:
            """Record the output of a module; from the module's second call on, under a name with
            the number of the call (``NAME#2``)."""
            calls[module] = count = calls.get(module, 0) + 1
            self.output_seen = self.output_seen or not module
            name = (module or OUTPUT) + (f"#{count}" if count > 1 else "")
            for tail, tensor in iter_tensors(output, self.is_tensor, name):
                self.note(f"forward/{tail}", tensor)

        try:
            with self.hook_modules(record_output):
                yield
            if not noted.has_phase("gradient"):
                self.note_gradients(self.current_gradients())
            trained = {one.name for one in self.trace.tensors if one.trained}
            for name, tensor in self.named_tensors().items():
                self.note(f"update/{name}" if name in trained else f"state/buffer/{name}", tensor)
            for slot, values in (
                self.optimizer_state().items() if self.optimizer is not None else ()
            ):
                for name, tensor in values.items():
                    self.note(f"state/{slot}/{name}", tensor)
        finally:
            self.step_arrays = None

    def note(self, name: str, value: Any) -> None:
        """Record the current value of a tensor, or an array that nobody changes later, under the
        name ``PHASE/NAME``; ignored if no step is being recorded."""
        if self.step_arrays is None:
            return
        if self.is_tensor(value):
            self.note_place(name, value)
            value = self.array(value) if self.step_arrays.needs_copy else self.view(value)
        self.step_arrays.add(name, value)

    def note_place(self, name: str, tensor: Any) -> None:
        """Keep in `member` the place of a rank's shard in the whole tensor, under ``name``; do
        nothing if the tensor is no shard or this process records alone."""
        if self.member is not None and (place := self.shard_place(tensor)) is not None:
            self.member.places[name] = place

    def note_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Record gradients by parameter name, of the parameters' shapes, and the current learning
        rates of the optimizer; ignored if no step is being recorded."""
        if gradients and self.optimizer is not None and (rates := self.learning_rates()):
            self.note("schedule/lr", np.asarray(rates, np.float64))
        for name, value in gradients.items():
            self.note(f"gradient/{name}", value)
            self.passes.finish(name, partial(self.as_view, value))

    def note_pass(self, name: str, gradient: Any) -> None:
        """Record the gradient of one backward pass for the parameter ``name``, before micro-batches
        are added up, clipped or exchanged, see `dualml.parity.ranks.backward_passes`; ignored if no
        step is being recorded."""
        if self.step_arrays is not None:
            copy = partial(self.array, gradient) if self.is_tensor(gradient) else gradient.copy
            self.passes.add(name, gradient, copy)

    def as_view(self, value: Any) -> NDArray[Any]:
        """Return a tensor or array as an array, which may share its memory."""
        return self.view(value) if self.is_tensor(value) else np.asarray(value)

    def store_step(self, noted: StoredStep) -> None:
        """Complete the trace after a step, and write it at once if the step raised."""
        noted.finish()
        if self.tape is not None:
            self.trace.operations = list(self.tape.calls)
        names = noted.names
        self.trace.order.append([n.partition("/")[2] for n in names if n.startswith("forward/")])
        if self.trace.raised:
            self.write()

    # Repeating.
    def repeat_step(
        self, noted: StepArrays, function: Callable[..., Any], inputs: Sequence[Any]
    ) -> None:
        """Run the step again from the current state, and add its arrays to ``noted``; restores
        nothing.

        Args:
            function: makes one step; called with all ``inputs``.

        Raises:
            UserError: the trace cannot be read or written.
        """
        try:
            with self.record_arrays(inputs, noted):
                function(*inputs)
        except Exception:
            self.check_files()
            raise

    def find_nondeterminism(
        self, keys: Sequence[str], distances: Mapping[str, float | None]
    ) -> dict[str, str] | None:
        """Return the first array in which two runs of the same step differ by more than
        `REPRODUCIBLE_RTOL`; smaller differences (a kernel may round by memory alignment or thread
        timing) are added to the trace's envelope if the step is reproducible.

        Outputs of single operations do not count, nor do rates of a schedule: an optimizer that
        sets them in its update still has those of the run before.

        Args:
            keys: keys of the arrays of the first run, in the order of the trace.
            distances: key → relative distance of the two runs; None for the same bits. A missing
                key counts as infinitely far.

        Returns:
            ``{"phase", "name", "type"}``, with the type of the module that made the array or
                ``""``; None if the step is reproducible.
        """
        widths: dict[str, float] = {}
        for name in keys:
            far = distances.get(name, float("inf"))
            if far is None:
                continue
            if far <= REPRODUCIBLE_RTOL:
                widths[name] = far
            elif not name.startswith(("operation/", "schedule/")):
                phase, _, rest = name.split("/", 2)
                module = rest.partition("#")[0].partition("[")[0]
                kind = self.trace.modules.get(module, "")
                return {"phase": phase, "name": rest, "type": kind}
        if widths and self.draws:
            self.trace.envelope = {**(self.trace.envelope or {}), **widths}
        return None

    def run_draw(self, number: int, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        """Run the step again from the current state with weights and inputs moved by units in the
        last place, and enlarge the trace's envelope to the distances from the recorded step. The
        model is left as this draw leaves it.

        Args:
            number: number of the draw, from 0; weights are moved by 2^number units.
            function: makes one step; called with all (moved) inputs.
        """
        step, seed = self.trace.steps, self.seed
        trained = {one.name for one in self.trace.tensors if one.trained}
        for name, tensor in self.named_tensors().items():
            if name not in trained or not is_finite_float(self.view(tensor)):
                continue
            if (shared := self.shared_view(tensor)) is not None:
                perturb_in_place(shared, seed, number, step, name, self.precision)
            else:
                self.load(perturb({name: self.view(tensor)}, seed, number, step, self.precision))
        moved = [self.perturb_input(one, f"input {i}", number) for i, one in enumerate(inputs)]
        self.rounding = (np.random.default_rng([seed, number, step]), 2**number)
        run = ComparedStep(step, self.trace.arrays, measure_draw)
        try:
            self.repeat_step(run, function, moved)
        finally:
            self.rounding = None
        if step < self.limit:  # the next step of this draw starts here
            self.draw_states[number] = self.take_snapshot({})
        widths = self.trace.envelope = self.trace.envelope or {}
        for name, far in run.distances.items():
            if far is not None:
                widths[name] = max(widths.get(name, 0.0), far)
        self.trace.draws = max(self.trace.draws, number + 1)

    # Snapshots.
    def capture_surroundings(self, function: Callable[..., Any]) -> Surroundings:
        """Return copies of the state outside of model and optimizer that ``function`` refers to and
        may change, and of the model's own counters, as `Surroundings`."""

        def is_kept(value: Any) -> bool:
            return value is self.optimizer or isinstance(value, Recorder) or self.is_saved(value)

        made = Surroundings(function, self.copy_tensor, is_kept, self.capture_tensors)
        if (restore := self.capture_tensors(self.model)) is not None:
            made.tensors.append(restore)
        return made

    def take_snapshot(self, recorded: Mapping[str, Callable[[], NDArray[Any]]]) -> Any:
        """Return what `snapshot` returns; the copied tensors are kept on the disk if the trace is
        there.

        Args:
            recorded: name of a tensor, or ``SLOT/NAME``, → function that reads it from the trace,
                so that it need not be written again.
        """
        large = self.files is not None and self.files.is_on_disk
        with self.convert_disk_errors():
            if large and self.files is not None:
                self.snapshot_file = SnapshotFile(self.files.folder, recorded)
            try:
                return self.snapshot()
            finally:
                self.snapshot_file = None

    def recorded_start(self) -> dict[str, Callable[[], NDArray[Any]]]:
        """Return name of a tensor → function that reads its initial value from the trace; empty if
        it has none."""
        if self.begun is not self.trace:
            return {}
        read = self.trace.arrays.__getitem__
        return {n: partial(read, array_key("parameters", 0, n)) for n in self.named_tensors()}

    def recorded_end(self) -> dict[str, Callable[[], NDArray[Any]]]:
        """Return name of a tensor → function that reads from the trace what it was at the end of
        the last step."""
        read, step = self.trace.arrays.__getitem__, self.trace.steps
        keys = {n: (array_key("update", step, n)) for n in self.named_tensors()}
        buffers = {n: array_key("state", step, f"buffer/{n}") for n in keys}
        every = {n: key if key in self.trace.arrays else buffers[n] for n, key in keys.items()}
        return {n: partial(read, key) for n, key in every.items() if key in self.trace.arrays}

    def shelve(self, tensor: Any, name: str = "") -> ShelvedTensor:
        """Keep the current value of a tensor, in memory or in the file of the current snapshot;
        return a handle that makes a tensor of it again. Called by `snapshot`.

        Args:
            name: name of a tensor of the model, whose numbers the trace may have already; empty for
                any other tensor.
        """
        if self.snapshot_file is None:
            copied = self.duplicate(tensor)
            return ShelvedTensor(lambda: copied)
        sample = self.sample(tensor)
        read = self.snapshot_file.write_array(self.view(tensor), name)
        return ShelvedTensor(lambda: self.tensor_like(read(), sample))

    @contextlib.contextmanager
    def convert_disk_errors(self) -> Iterator[None]:
        """Convert an error of the disk inside the block to a `UserError` that says what to do."""
        try:
            yield
        except OSError as error:
            if self.files is None:
                raise
            raise self.files.fail(error) from None

    def check_files(self) -> None:
        """Raise the `UserError` of a failed write of the trace, if there was one, so that it is not
        taken for an error of the step."""
        if self.files is not None and self.files.failure is not None:
            raise self.files.failure from None

    def perturb_input(self, value: Any, name: str, number: int) -> Any:
        """Return an input moved by units in the last place as weights are, because layers before
        the first weight round their results as well.

        Inputs whose values are all whole numbers (tokens, labels, masks, pixel values), not finite
        or no tensors are returned unchanged, and zeros stay zero.

        Args:
            value: the input.
            name: seed of its perturbation.
            number: number of the draw, from 0.
        """
        if not self.is_tensor(value):
            return value
        array = self.array(value)
        if (
            array.dtype.kind != "f"
            or not is_finite_float(array)
            or (array == np.round(array)).all()
        ):
            return value
        near = perturb({name: array}, self.seed, number, self.trace.steps, self.precision)[name]
        return self.tensor_like(np.where(array == 0, 0, near).astype(array.dtype), value)


def is_finite_float(array: NDArray[Any]) -> bool:
    """Return whether an array holds real floating-point numbers, all of them finite."""
    if array.dtype.kind != "f":
        return False
    if array.size <= LARGE or not array.flags.c_contiguous:
        return bool(np.isfinite(array).all())
    flat = array.reshape(-1)  # in blocks: a mask of a large array would be new memory
    return all(np.isfinite(flat[at : at + LARGE]).all() for at in range(0, flat.size, LARGE))
