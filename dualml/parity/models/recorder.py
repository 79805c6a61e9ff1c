"""The framework-neutral part of a recorder: what is recorded in a step, how steps are repeated.

`dualml_torch.record.Recorder` and `dualml_ms.record.Recorder` implement how their framework lists,
hooks, copies and restores. A recorder does not decide how a step is made. It either watches one
(`Recorder.step`), or calls a function that makes one, and calls it again with weights moved by
units in the last place (`Recorder.run`). Only the latter measures the width of rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.common.distance import BLOCK_ELEMENTS
from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parity.envelope import perturb
from dualml.parity.models.gap import gap, has_nan
from dualml.parity.models.model_ref import error_reason, user_line
from dualml.parity.models.operations import Operation, Tape
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import OUTPUT, Arrays, Trace, array_key, hash_array, iter_tensors

#: Draws: weights moved by 1, 2 and 4 units in the last place.
DRAWS = 3
#: Maximum relative distance of two runs of one step that still counts as reproducible.
REPRODUCIBLE_RTOL = 1e-5
#: Size of the random offsets that make weights distinguishable.
UNLIKE = 1e-3


@keep_former_members
class Recorder:
    """A recorder of the first steps of a training script, see `dualml.parity.models.trace`.

    Args:
        model: the whole model; its outputs and those of all its modules are recorded.
        folder: for ``trace.safetensors`` and ``trace.json``, rewritten after every step; None keeps
            the trace in memory.
        optimizer: the optimizer whose state is recorded after every update.
        steps: number of steps to record; later ones run unchanged.
        draws: how often `run` repeats each step with moved weights; 0 measures no rounding.
        seed: seed of the draws.

    Raises:
        UserError: not a model of this framework.
    """

    framework: ClassVar[str]
    #: Folders of packages whose lines are not the user's.
    skip: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        model: Any,
        folder: str | Path | None,
        optimizer: Any = None,
        *,
        steps: int = 3,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        if steps < 1 or draws < 0:
            raise UserError(f"steps >= 1 and draws >= 0; received {steps} and {draws}")
        self.check(model)
        self.model, self.optimizer, self.folder = model, optimizer, folder and Path(folder)
        self.limit, self.draws, self.seed = steps, draws, seed
        self.trace = Trace(self.framework, self.environment(), self.tensors(), self.modules())
        self.draw_states: dict[int, Any] = {}
        self.step_arrays: Arrays | None = None
        self.tape: Tape | None = None
        #: In a draw: generator and units for the rounding of what is computed from the outputs.
        self.rounding: tuple[np.random.Generator, int] | None = None
        self.output_seen = False

    # Implemented for each framework.
    def check(self, model: Any) -> None:
        """Check whether the model can be recorded.

        Raises:
            UserError: not a model of this framework, or in a mode that cannot be watched.
        """

    def environment(self) -> dict[str, str]:
        """Return versions, device and number of threads."""
        raise NotImplementedError

    def named_tensors(self) -> dict[str, Any]:
        """Return parameters, then buffers, by name; one that has two names appears once."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """Return the parameters and buffers, in the framework's order."""
        raise NotImplementedError

    def modules(self) -> dict[str, str]:
        """Return name → type of every submodule, without the model itself."""
        raise NotImplementedError

    def weights(self) -> Arrays:
        """Return copies of all `tensors` by name, each of its tensor's shape."""
        raise NotImplementedError

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy these values into the model's tensors, each of its tensor's shape."""
        raise NotImplementedError

    def gradients(self) -> Arrays:
        """Return the parameters' gradients by name, of the parameters' shapes; empty if the
        framework keeps none."""
        return {}

    def gradients_by_name(self, gradients: Any) -> Arrays:
        """Return the gradients that the script passed to `saw` by name, of the parameters' shapes.

        Raises:
            UserError: not one for each trained parameter.
        """
        raise NotImplementedError

    def optimizer_state(self) -> dict[str, Arrays]:
        """Return the optimizer's state: slot → name → copy, of the parameter's shape."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """Return a copy of all that a step changes: weights, buffers, optimizer."""
        raise NotImplementedError

    def restore(self, kept: Any) -> None:
        """Restore weights, buffers and optimizer from a `snapshot`."""
        raise NotImplementedError

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor of the framework."""
        raise NotImplementedError

    def array(self, tensor: Any) -> NDArray[Any]:
        """Return a copy of a tensor on the host, of the same shape."""
        raise NotImplementedError

    def tensor_like(self, array: NDArray[Any], tensor: Any) -> Any:
        """Return a tensor with the values and shape of ``array``, and the dtype and device of
        ``tensor``."""
        raise NotImplementedError

    def hook_modules(
        self, tell: Callable[[str, Any], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Report every module's output within the context.

        Args:
            tell: called with the module's name (``""`` for the model itself) and its output.
        """
        raise NotImplementedError

    def make_tape(self) -> Tape:
        """Return an empty tape that knows this model's parameters and modules."""
        raise NotImplementedError

    def watch_operations(self) -> contextlib.AbstractContextManager[Any]:
        """Within the context, draw shared random numbers and report every operation to `tape`. Does
        nothing unless a framework overrides it."""
        return contextlib.nullcontext()

    # Called by a script.
    @contextlib.contextmanager
    def step(self, *inputs: Any) -> Iterator[Recorder]:
        """Record what happens within the context: one forward, one backward, one update.

        The trace is then written to the folder. A step that raises is recorded up to there, and the
        error passes. After the last step to record, nothing is recorded.

        Args:
            inputs: the tensors that the step trains on, targets included; only their digests are
                kept.
        """
        if self.is_done:
            yield self
            return
        self.begin_step(inputs)
        try:
            with self.record_arrays(inputs) as noted:
                yield self
        except Exception as error:  # the arrays recorded so far show where it failed
            self.trace.raised = error_reason(error) + user_line(error, self.skip)
            self.store_step(noted)
            raise
        self.store_step(noted)
        self.trace.steps += 1
        self.write()

    def saw(self, *, loss: Any = None, gradients: Any = None) -> None:
        """Record values that hooks cannot see; ignored outside of a recorded step.

        Args:
            loss: the mean loss of this step, a scalar.
            gradients: one per trained parameter, of its shape, in their order or by name; PyTorch
                keeps them.
        """
        if self.step_arrays is None:
            return  # after the last recorded step
        if loss is not None:
            value = self.array(loss) if self.is_tensor(loss) else np.asarray(loss)
            self.step_arrays["loss/loss"] = value.astype(np.float64).reshape(())
        if gradients is not None:
            self.note_gradients(self.gradients_by_name(gradients))

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Make one step by calling ``function(*inputs)``, and measure how rounding affects it.

        The function makes one whole update and reports its loss with `saw`. It is called once for
        the script, once more in the first step (to check that it is reproducible), and, if it is,
        once for each draw. Afterwards everything is as the first call left it. Changes outside of
        model and optimizer (a schedule, a counter) must be made outside of the function. After the
        last step to record, the function is only called.

        Returns:
            What the first call returned.
        """
        if self.is_done:
            return function(*inputs)
        start = self.snapshot()
        with self.step(*inputs):
            result = function(*inputs)
        end, step = self.snapshot(), self.trace.steps
        base = {n: v for n, v in self.trace.arrays.items() if n.split("/")[1] == f"{step:08d}"}
        try:
            if step == 1:
                self.restore(start)
                self.trace.random = self.find_nondeterminism(
                    base, self.repeat_step(function, inputs)
                )
                self.trace.repeated = True
            if self.trace.random is None:
                for draw in range(self.draws):
                    self.run_draw(draw, self.draw_states.get(draw, start), function, inputs, base)
        finally:
            self.restore(end)
        self.write()
        return result

    def write(self) -> None:
        """Write the trace to the folder, if there is one."""
        if self.folder:
            self.trace.write(Path(self.folder))

    @property
    def is_done(self) -> bool:
        """Whether all steps are recorded."""
        return self.trace.steps >= self.limit

    def trace_forward(self, forward: Callable[..., Any], inputs: Sequence[Any]) -> list[Operation]:
        """Return the operations of a forward pass, and restore the model; empty if the pass fails.

        The weights are moved by different amounts for this pass, because otherwise scales that are
        all 1 would look like the same tensor.

        Args:
            forward: runs the forward pass on ``inputs``.
        """
        start, rng = self.snapshot(), np.random.default_rng(self.seed)
        self.load(
            {
                name: (value + UNLIKE * rng.standard_normal(value.shape)).astype(value.dtype)
                for name, value in self.weights().items()
                if is_finite_float(value)
            }
        )
        self.tape = tape = self.make_tape()
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
    def begin_step(self, inputs: Sequence[Any]) -> None:
        """Record the initial weights before the first step, and the digests of a step's inputs."""
        if not self.trace.inputs:
            for name, value in self.weights().items():
                self.trace.arrays[array_key("parameters", 0, name)] = value
        arrays = [self.as_array(one) for one in inputs]
        self.trace.inputs.append([hash_array(one) for one in arrays if one is not None])

    def as_array(self, value: Any) -> NDArray[Any] | None:
        """Return a tensor, array or number as an array of its shape; None for anything else."""
        if self.is_tensor(value):
            return self.array(value)
        return np.asarray(value) if isinstance(value, np.ndarray | int | float) else None

    @contextlib.contextmanager
    def record_arrays(self, inputs: Sequence[Any]) -> Iterator[Arrays]:
        """Yield a dict that has one step's arrays, as ``PHASE/NAME``, once the block has ended.

        In the block the modules' outputs are recorded, in execution order, and what the user shows;
        at its end gradients that were not shown, the new weights and the optimizer's state, and in
        the first step the outputs of operations. If the block raises, of these only the operations.
        """
        noted: Arrays = {}
        calls: dict[str, int] = {}
        self.step_arrays, self.output_seen = noted, False
        # Operations of the first step: later ones are the same calls with other numbers.
        self.tape = self.make_tape() if len(self.trace.inputs) == 1 else None
        if self.tape is not None:
            for i, one in enumerate(inputs):
                if self.is_tensor(one):
                    self.tape.register(one, f"input:{i}")

        def record_output(module: str, output: Any) -> None:
            """Record the output of a module, with a number from its second call on."""
            calls[module] = count = calls.get(module, 0) + 1
            self.output_seen = self.output_seen or not module
            name = (module or OUTPUT) + (f"#{count}" if count > 1 else "")
            for tail, tensor in iter_tensors(output, self.is_tensor, name):
                noted[f"forward/{tail}"] = self.array(tensor)

        try:
            with self.hook_modules(record_output):
                yield noted
            if not any(name.startswith("gradient/") for name in noted):
                self.note_gradients(self.gradients())
            trained = {one.name for one in self.trace.tensors if one.trained}
            for name, value in self.weights().items():
                noted[f"update/{name}" if name in trained else f"state/buffer/{name}"] = value
            for slot, values in (
                self.optimizer_state().items() if self.optimizer is not None else ()
            ):
                for name, value in values.items():
                    noted[f"state/{slot}/{name}"] = value
        finally:
            self.step_arrays = None
            if self.tape is not None:
                noted |= {f"operation/{name}": value for name, value in self.tape.arrays.items()}

    def note_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        """Record gradients by name, of the parameters' shapes, unless no step is recorded."""
        if self.step_arrays is not None:
            self.step_arrays |= {f"gradient/{name}": value for name, value in gradients.items()}

    def store_step(self, noted: Arrays) -> None:
        """Add a step's arrays to the trace, and write it at once if the step raised."""
        self.trace.arrays |= key_by_step(len(self.trace.inputs), noted)
        if self.tape is not None:
            self.trace.operations = list(self.tape.calls)
        self.trace.order.append([n.partition("/")[2] for n in noted if n.startswith("forward/")])
        if self.trace.raised:
            self.write()

    # Repeating.
    def repeat_step(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Arrays:
        """Run the step again from the current state, and return its arrays, keyed as in the trace.

        Args:
            function: makes one step on ``inputs``.
        """
        with self.record_arrays(inputs) as noted:
            function(*inputs)
        return key_by_step(self.trace.steps, noted)

    def find_nondeterminism(self, base: Arrays, repeated: Arrays) -> dict[str, str] | None:
        """Return the first array in which two runs of the same step differ by more than rounding;
        outputs of single operations do not count.

        A kernel may round by memory alignment or thread timing; such differences are added to the
        envelope.

        Args:
            base, repeated: the arrays of the two runs.

        Returns:
            ``{"phase", "name", "type"}``; None if the step is reproducible.
        """
        widths: dict[str, float] = {}
        for name, value in base.items():
            other = repeated.get(name)
            if other is not None and is_bit_identical(value, other):
                continue
            far = float("inf") if other is None else gap(value, other)
            if far <= REPRODUCIBLE_RTOL:
                widths[name] = far
            elif not name.startswith("operation/"):
                phase, _, rest = name.split("/", 2)
                module = rest.partition("#")[0].partition("[")[0]
                kind = self.trace.modules.get(module, "")
                return {"phase": phase, "name": rest, "type": kind}
        if widths and self.draws:
            self.trace.envelope = {**(self.trace.envelope or {}), **widths}
        return None

    def run_draw(
        self,
        number: int,
        start: Any,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        base: Arrays,
    ) -> None:
        """Run the step again with moved weights and inputs, from where this draw was, and widen the
        envelope. The model is left as this draw leaves it.

        Args:
            number: number of the draw, from 0; weights are moved by 2^number units.
            start: the snapshot to start from.
            function: makes one step on ``inputs``.
            base: the arrays of the unperturbed step.
        """
        self.restore(start)
        step, seed = self.trace.steps, self.seed
        trained = {one.name for one in self.trace.tensors if one.trained}
        weights = {n: w for n, w in self.weights().items() if n in trained and is_finite_float(w)}
        self.load(perturb(weights, seed, number, step))
        moved = [self.perturb_input(one, f"input {i}", number) for i, one in enumerate(inputs)]
        self.rounding = (np.random.default_rng([seed, number, step]), 2**number)
        try:
            repeated = self.repeat_step(function, moved)
        finally:
            self.rounding = None
        if step < self.limit:  # the next step of this draw starts here
            self.draw_states[number] = self.snapshot()
        widths = self.trace.envelope = self.trace.envelope or {}
        for name, value in repeated.items():
            if name in base and not has_nan(base[name]):
                widths[name] = max(widths.get(name, 0.0), gap(base[name], value))
        self.trace.draws = max(self.trace.draws, number + 1)

    def perturb_input(self, value: Any, name: str, number: int) -> Any:
        """Return an input moved like a weight, because layers before the first weight round, too.

        Inputs that are all integers (tokens, labels, masks, pixel values), not finite or no tensors
        are returned unchanged, and zeros stay zero.

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
        near = perturb({name: array}, self.seed, number, self.trace.steps)[name]
        return self.tensor_like(np.where(array == 0, 0, near).astype(array.dtype), value)


def key_by_step(step: int, noted: Arrays) -> Arrays:
    """Return arrays ``PHASE/NAME`` of one step, keyed as in a trace."""
    parts = {name: name.partition("/") for name in noted}
    return {array_key(parts[name][0], step, parts[name][2]): value for name, value in noted.items()}


def is_bit_identical(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two arrays have the same shape, dtype and bits, NaNs included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in (a, b))
    return all(
        np.array_equal(a[at : at + BLOCK_ELEMENTS], b[at : at + BLOCK_ELEMENTS])
        for at in range(0, a.size, BLOCK_ELEMENTS)
    )


def is_finite_float(array: NDArray[Any]) -> bool:
    """Return whether an array holds real floating-point numbers, all of them finite."""
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())
