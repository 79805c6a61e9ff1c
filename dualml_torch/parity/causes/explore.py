"""A user's PyTorch model, run again with mutations: see `dualml.parity.causes.search`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.trial_guard import TrialGuard
from dualml.parity.models.operations import Operation
from dualml.parity.models.snapshots import SnapshotFile
from dualml.parity.models.trace import Trace, array_key
from dualml.parity.models.trace_files import make_temporary_arrays
from dualml.parity.models.value_matching import keep_array
from dualml_torch.parity.causes.backward import BackwardReplay
from dualml_torch.parity.causes.call_actions import NUMBERS
from dualml_torch.parity.causes.lines import RULES_FILE, MutatedLines, optimizer_file, trace_calls
from dualml_torch.parity.causes.mutating_tracer import MutatingTracer
from dualml_torch.parity.causes.replay import Replay, ReplayTracer, Value
from dualml_torch.parity.causes.sharing import mutate_sharing, shared_names
from dualml_torch.parity.causes.update import MutatedUpdate, describe_groups, rule_name
from dualml_torch.parity.recorder import Recorder

#: Actions that mutate modules.
MODULE_ACTIONS = ("share", "untie", "bias")
#: Actions that mutate no call of the model.
NON_CALL_ACTIONS = ("optimizer", "freeze", "train", *MODULE_ACTIONS)
#: The unchanged rule of PyTorch's class, written out in lines that can be mutated.
PLAIN_RULE = Mutation("optimizer", "optimizer", (), "", "form:plain", True)
#: Types whose memory NumPy can share.
PLAIN = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)


class MutatingRecorder(Recorder):
    """A recorder under which some operations and updates are mutated: changed on trial, by a
    `Mutation` each, to see whether the numbers become those of the other side.

    Attributes:
        changes: the mutations of the model's calls.
        fused: whether functions that dualml can also compute by several calls are called as a
            whole.
    """

    changes: Sequence[Mutation] = ()
    fused = True
    #: Whether calls are recorded for replays.
    replays = False
    recording: ReplayTracer | None = None
    step_inputs: Sequence[Any] = ()
    #: Initial values of parameters and buffers, which replays use in place of copies.
    initial_weights: Mapping[str, torch.Tensor] | None = None

    def record_start(self) -> None:
        """Record the initial weights and buffers in the trace, unless it has them; where
        `initial_weights` has them, that tensor's memory is used, without a copy."""
        if self.begun is self.trace:
            return
        self.begun, arrays = self.trace, self.trace.arrays
        known = self.initial_weights or {}
        for name, tensor in self.named_tensors().items():
            one, key = known.get(name), array_key("parameters", 0, name)
            value = self.array(tensor) if one is None or one.dtype not in PLAIN else one.numpy()
            if isinstance(arrays, LazyArrays):
                arrays.add(key, value.shape, partial(keep_array, value))
            else:
                arrays[key] = value  # type: ignore[index]

    def make_tracer(self) -> MutatingTracer | None:
        """Make the tracer of a step: one that also records calls for replays if `replays` is set,
        else one that mutates; None if there is neither a tape nor anything to mutate."""
        known = dict(self.model.named_parameters())
        # Copies: the step writes into buffers.
        known |= {name: one.detach().clone() for name, one in self.model.named_buffers()}
        settings = self.fused, self.chance, self.keeps_attention
        if self.tape is not None and self.replays:
            self.recording = ReplayTracer(
                self.tape, self.changes, known, *settings, weights=self.initial_weights
            )
            return self.recording
        if self.tape is not None:
            return MutatingTracer(self.tape, self.changes, known, *settings)
        if not self.changes and self.fused:
            return None
        # A later step: calls are numbered, but their values are not recorded.
        tape = self.make_tape()
        for i, one in enumerate(self.step_inputs):
            tape.register(one, f"input:{i}")
        tape.array = empty_array
        return MutatingTracer(tape, self.changes, known, *settings)


def empty_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return an empty float32 array, for steps whose values are not recorded."""
    return np.zeros(0, np.float32)


class Explorer:
    """Runs the steps of a comparison again, with mutations: changes of the model's or the
    optimizer's operations on trial, see `dualml.parity.causes.mutation.Mutation`.

    Args:
        recorder: recorder of the model, now in its initial state.
        make: makes the function of one step for a recorder, see `dualml_torch.models.step`.
        inputs: tensors that each step receives.
        steps: number of steps of a run.
        folder: for the traces of whole runs, each of which is deleted when nobody needs it, and for
            the initial state; None keeps them in memory.
        recorded: name of a parameter or buffer → function that reads its initial value, if there is
            a folder.
    """

    def __init__(
        self,
        recorder: MutatingRecorder,
        make: Callable[[MutatingRecorder], Callable[..., None]],
        inputs: Sequence[Any],
        steps: int,
        folder: Path | None = None,
        recorded: Mapping[str, Callable[[], NDArray[Any]]] | None = None,
    ) -> None:
        self.recorder, self.make_step, self.inputs, self.steps = recorder, make, inputs, steps
        #: Notes what is tried, see `TrialGuard`.
        self.guard = TrialGuard()
        self.folder = folder
        if folder is not None:
            recorder.snapshot_file = SnapshotFile(folder, recorded or {})
        self.start = recorder.snapshot()
        recorder.snapshot_file = None
        #: Initial values of parameters and buffers, which nothing changes.
        self.weights: Mapping[str, torch.Tensor] = {
            name: one.recall() for name, one in self.start[0].items()
        }
        recorder.initial_weights = self.weights
        self.replay: Replay | None = None
        self.backward: BackwardReplay | None = None
        self.recorded_changes: tuple[Mutation, ...] | None = None
        #: Initial values of parameters that only a mutation creates.
        self.initial_values: dict[str, torch.Tensor] = {}
        self.trainable_names = [n for n, p in recorder.model.named_parameters() if p.requires_grad]
        # The recorder's own hook comes after it, and sees what it returns.
        torch.nn.Module.register_forward_hook(recorder.model, self.reorder_outputs)

    def reorder_outputs(self, model: Any, given: Any, outputs: Any) -> Any:
        """Return the model's outputs, a tuple or list, reordered where a mutation with the action
        ``returned`` says so; a forward hook of the model."""
        for change in self.recorder.changes:
            if change.action == "returned" and isinstance(outputs, tuple | list):
                outputs = type(outputs)(outputs[i] for i in change.value)
        return outputs

    def reset(self, changes: Sequence[Mutation]) -> None:
        """Restore the initial state and set the mutations of calls for the next run; those of the
        optimizer, of modules and of lines are left out here."""
        self.recorder.restore(self.start)
        self.recorder.changes = [
            c for c in changes if c.action not in NON_CALL_ACTIONS and not c.line
        ]

    def choose_trained(self, changes: Sequence[Mutation]) -> set[str]:
        """Let exactly the parameters require gradients that are trained under these mutations;
        return the names that mutations with the action ``train`` add."""
        frozen = {name for c in changes if c.action == "freeze" for name in c.value}
        thawed = {name for c in changes if c.action == "train" for name in c.value}
        for name, p in self.recorder.model.named_parameters():
            p.requires_grad_(
                name in thawed or (name in self.trainable_names and name not in frozen)
            )
        return thawed

    def gradients(self, changes: Sequence[Mutation]) -> dict[str, NDArray[Any]]:
        """Return the gradients of the first step, by parameter, from the initial state under these
        mutations of calls; no update is made and no trace recorded. RefusedTrialError as in
        `run`."""
        recorder, optimizer = self.recorder, self.recorder.optimizer
        self.reset(changes)
        inputs = recorder.step_inputs = [one.clone() for one in self.inputs]
        recorder.optimizer = recorder.tape = None
        try:
            with self.guard.trial(changes[-1] if changes else None):
                self.make_step(recorder)(*inputs)
        finally:
            recorder.optimizer = optimizer
        return recorder.gradients()

    def record(self, changes: Sequence[Mutation]) -> None:
        """Make the first step's forward and backward pass under these mutations, without an update,
        and keep its calls for `probe` and `changed_gradients`; do nothing if those of the same
        mutations are kept already."""
        if self.recorded_changes == tuple(changes):
            return
        recorder, optimizer = self.recorder, self.recorder.optimizer
        self.recorded_changes = self.replay = self.backward = None
        self.reset(changes)
        self.choose_trained(changes)
        modules = [one for one in changes if one.action in MODULE_ACTIONS]
        with mutate_sharing(recorder.model, modules, self.initial_values):
            recorder.initial_weights = None if modules else self.weights
            inputs = recorder.step_inputs = [one.clone() for one in self.inputs]
            recorder.optimizer, recorder.tape, recorder.replays = None, recorder.make_tape(), True
            try:
                for i, one in enumerate(inputs):
                    recorder.tape.register(one, f"input:{i}")
                self.make_step(recorder)(*inputs)
            finally:
                recorder.optimizer, recorder.replays = optimizer, False
                recorder.tape.arrays.clear()  # the replay has its own
                recorder.tape = None
        if recorder.recording is not None:
            self.replay, recorder.recording = recorder.recording.replay, None
            self.recorded_changes = tuple(changes)

    def changed_gradients(
        self, changes: Sequence[Mutation], change: Mutation
    ) -> Iterator[tuple[str, NDArray[Any]]] | None:
        """Return the parameters whose gradients of the first step ``change`` alters when it is
        added to ``changes``, each with its new gradient, see `BackwardReplay.changed_gradients`;
        None if only a whole backward pass can tell."""
        self.record(changes)
        if self.replay is None or not self.replay.gradients:
            return None
        if self.backward is None:
            trained = self.recorder.trainable_parameters()
            gradients = {name: p.grad for name, p in trained.items() if p.grad is not None}
            self.backward = BackwardReplay(self.replay, gradients)
        found = self.backward.changed_gradients(change)
        return found and ((name, one.detach().numpy()) for name, one in found)

    def replay_updates(
        self, changes: Sequence[Mutation], gradients: Sequence[Mapping[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Return the weights after one update with each of these gradients (name → array) in turn,
        from the initial state, under mutations of the optimizer alone; the model is not run, and
        parameters without an array get None."""
        recorder = self.recorder
        self.reset(changes)
        with self.mutate_optimizer(changes, []):
            for of_step in gradients:
                self.set_gradients(of_step)
                recorder.optimizer.step()
        return recorder.weights()

    def run(self, changes: Sequence[Mutation], steps: int | None = None) -> Trace:
        """Run all steps, or the first ``steps``, under these mutations from the initial weights;
        return their trace.

        A mutation that fails in a step ends the run and is reported in ``raised`` of the trace.

        Raises:
            RefusedTrialError: the last mutation kills the process.
        """
        with self.guard.trial(changes[-1] if changes else None):
            return self.run_steps(changes, steps or self.steps)

    def run_steps(self, changes: Sequence[Mutation], steps: int) -> Trace:
        """Run the first ``steps`` steps as `run` does, without its guard."""
        recorder = self.recorder
        self.reset(changes)
        thawed = self.choose_trained(changes)
        modules = [c for c in changes if c.action in MODULE_ACTIONS]
        with contextlib.ExitStack() as stack:
            fresh = stack.enter_context(
                mutate_sharing(recorder.model, modules, self.initial_values)
            )
            recorder.trace = Trace(
                recorder.framework,
                recorder.trace.environment,
                recorder.tensors(),
                recorder.modules(),
                arrays={} if self.folder is None else make_temporary_arrays(self.folder),
            )
            more = [p for n, p in recorder.model.named_parameters() if n in thawed]
            stack.enter_context(self.mutate_optimizer(changes, [*more, *fresh]))
            step = self.make_step(recorder)
            for _ in range(steps):
                # Clones: mutated calls may write where the original ones only read.
                inputs = recorder.step_inputs = [one.clone() for one in self.inputs]
                try:
                    with recorder.step(*inputs):
                        step(*inputs)
                except Exception:
                    if recorder.trace.raised is None:
                        raise
                if recorder.trace.raised:
                    break
        return recorder.trace

    @contextlib.contextmanager
    def mutate_optimizer(
        self, changes: Sequence[Mutation], more: Sequence[torch.nn.Parameter]
    ) -> Iterator[None]:
        """Mutate the optimizer's updates inside the block, add the parameters ``more`` to its first
        group and leave out frozen ones; where calls are detached, gradients that are None become
        zeros. Do nothing without an optimizer, or with nothing to change."""
        optimizer = self.recorder.optimizer
        if optimizer is None or not (changes or more):
            yield
            return
        lines = [c for c in changes if c.action.startswith("line:")]
        cut = any(c.action in ("detach", "cut") for c in changes)
        rules = [c for c in changes if c.action == "optimizer"]
        if (
            lines
            and rule_name(optimizer)
            and not any(str(c.argument).startswith("form:") for c in rules)
        ):
            rules.append(PLAIN_RULE)
        groups = optimizer.param_groups
        left_out = {name for c in changes if c.action == "freeze" for name in c.value}
        if left_out:
            frozen = {id(p) for n, p in self.recorder.model.named_parameters() if n in left_out}
            optimizer.param_groups = [
                {**group, "params": [p for p in group["params"] if id(p) not in frozen]}
                for group in groups
            ]
        known = {id(p) for group in groups for p in group["params"]}
        fresh = [p for p in more if id(p) not in known]
        if fresh:
            own = optimizer.param_groups
            first = {**own[0], "params": [*own[0]["params"], *fresh]}
            optimizer.param_groups = [first, *own[1:]]
        names = {id(p): name for name, p in self.recorder.model.named_parameters()}
        update, original = MutatedUpdate(optimizer, rules, names), optimizer.step
        for change in rules:
            if str(change.argument).startswith("own:"):  # restored with the rest of its state
                setattr(optimizer, str(change.argument).removeprefix("own:"), change.value)

        def mutated_step(*args: Any, **kwargs: Any) -> None:
            self.recorder.before_update(optimizer, (), {})
            if cut:  # a gradient of zeros, as where an edge is cut in MindSpore: it still decays
                for p in self.recorder.trainable_parameters().values():
                    p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            known = [p for group in optimizer.param_groups for p in group["params"]]
            with MutatedLines(lines, known) if lines else contextlib.nullcontext():
                update.step(original)

        optimizer.step = mutated_step
        try:
            yield
        finally:
            del optimizer.step
            optimizer.param_groups = groups
            for p in fresh:
                optimizer.state.pop(p, None)

    def shared_aliases(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the further names of shared modules and parameters of the model, each with the
        parameters below it and their shapes, see `shared_names`."""
        return shared_names(self.recorder.model)

    def set_constants(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Register copies of these arrays as tensors in `NUMBERS`, by name; they stay for all
        explorers."""
        NUMBERS.update({name: torch.from_numpy(array.copy()) for name, array in values.items()})

    def set_initial_values(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Add these arrays to the initial values, by name, of parameters that only a mutation
        creates; their memory is shared."""
        self.initial_values |= {name: torch.from_numpy(array) for name, array in values.items()}

    def trace_update(self, gradients: Mapping[str, NDArray[Any]]) -> list[Operation]:
        """Make one update from these gradients and the initial state and return its operations: the
        lines of a user's own optimizer, and those of the rule that PyTorch's class implements;
        empty, without an update, if there is neither."""
        optimizer = self.recorder.optimizer
        rule = [PLAIN_RULE] if rule_name(optimizer) else []
        files = [one for one in (optimizer_file(optimizer), RULES_FILE if rule else "") if one]
        if optimizer is None or not files:
            return []
        self.reset([])
        self.set_gradients(gradients)
        known = [p for group in optimizer.param_groups for p in group["params"]]
        with self.mutate_optimizer(rule, []):
            return trace_calls(optimizer.step, files, known)

    def set_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        """Set each parameter's gradient to a copy of its array; None for parameters without one."""
        for name, p in self.recorder.model.named_parameters():
            array = gradients.get(name)
            p.grad = None if array is None else self.recorder.tensor_like(array, p).clone()

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Return one dict per parameter group of the optimizer, see
        `dualml_torch.parity.causes.update.describe_groups`."""
        names = {id(p): name for name, p in self.recorder.model.named_parameters()}
        return describe_groups(self.recorder.optimizer, names)

    @torch.no_grad()
    def probe(
        self, change: Mutation, calls: int, visit: Callable[[str, NDArray[Any]], bool]
    ) -> None:
        """Replay one call of the recorded first step (`record`) under a mutation, then the calls
        that depend on it, in order, as far as their inputs change.

        Args:
            calls: largest number of dependent calls to replay.
            visit: called with the name and array of each output that changes; False ends it.

        Raises:
            RefusedTrialError: the mutation kills the process.
        """
        with self.guard.trial(change):
            self.replay_dependents(change, calls, visit)

    def replay_dependents(
        self, change: Mutation, calls: int, visit: Callable[[str, NDArray[Any]], bool]
    ) -> None:
        """Replay a mutated call and at most ``calls`` that depend on it, giving ``visit`` each
        output that changes, until it returns False: `probe` without the guard that refuses
        mutations that would kill the process."""
        replay = self.replay
        assert replay is not None
        overlay: dict[str, Value] = {}
        operations = replay.tape.calls
        alone = change.action in ("parameters", "borrow")
        if alone:
            overlay |= self.swapped_values(change)
        if change.action == "swap":
            going = self.replay_swap(change, overlay, visit)
        else:
            going = self.replay_and_visit(
                change.sites[0], overlay, [] if alone else [change], visit
            )
        done = 0
        for number in range(change.sites[0] + 1, len(replay.calls)):
            if not going or done == calls:
                return
            again = number in change.sites and not alone
            if not again and overlay.keys().isdisjoint(operations[number].inputs):
                continue
            if change.action == "swap" and number == change.sites[0] + int(change.value):
                continue
            going = self.replay_and_visit(number, overlay, [change] if again else [], visit)
            done += 1

    def swapped_values(self, change: Mutation) -> dict[str, Value]:
        """Return name → value to use in its place for a mutation that swaps two parameters (action
        ``parameters``) or uses another module's parameters (``borrow``); empty if the other one is
        unknown."""
        assert self.replay is not None
        values = self.replay.values
        if change.action == "parameters":
            x, y = (str(change.old), str(change.value))
            return {x: values[y], y: values[x]} if y in values else {}
        own, other = f"parameter:{change.argument}", f"parameter:{change.value}"
        known, rows = self.weights, {}  # as they were before the first update
        for name in known:
            there = other + f"parameter:{name}".removeprefix(own)
            if (
                f"parameter:{name}".startswith(f"{own}.")
                and there.removeprefix("parameter:") in known
            ):
                rows[f"parameter:{name}"] = known[there.removeprefix("parameter:")]
        return rows

    def replay_swap(
        self,
        change: Mutation,
        overlay: dict[str, Value],
        visit: Callable[[str, NDArray[Any]], bool],
    ) -> bool:
        """Replay two calls in swapped order, the first on the result of the second, store the
        result in ``overlay`` under the second one's name, and return whether ``visit`` wants to go
        on."""
        first, second = change.sites[0], change.sites[0] + int(change.value)
        replay = self.replay
        assert replay is not None
        given = replay.tape.calls[first].inputs[int(change.argument)]
        name = f"op:{first}"
        value = replay.run(second, {name: replay.values[given]}, [])[0]
        last = overlay[f"op:{second}"] = replay.run(first, {given: value}, [])[0]
        return visit(f"op:{second}", self.recorder.array(last))

    def replay_and_visit(
        self,
        number: int,
        overlay: dict[str, Value],
        changes: Sequence[Mutation],
        visit: Callable[[str, NDArray[Any]], bool],
    ) -> bool:
        """Replay call ``number`` under ``changes`` and with the inputs in ``overlay``. Store its
        changed outputs in ``overlay``, remove unchanged ones from it, and call ``visit`` with each
        changed one; return False as soon as ``visit`` does, else True."""
        replay = self.replay
        assert replay is not None
        for i, value in enumerate(replay.run(number, overlay, changes)):
            name = f"op:{number}[{i}]" if i else f"op:{number}"
            was = replay.values.get(name)
            # An unchanged output requires no replay of the calls that use it.
            if was is not None and was.dtype == value.dtype and torch.equal(was, value):
                overlay.pop(name, None)
                continue
            overlay[name] = value.detach()
            plain = value.dtype in PLAIN and not value.is_neg()
            array = overlay[name].numpy() if plain else self.recorder.array(value)
            if not visit(name, array):
                return False
        return True
