"""The recorder's neutral half: what is noted in a step, how it is repeated, when it is written.

`dualml_torch.record.Recorder` and `dualml_ms.record.Recorder` say how their framework lists,
hooks, copies and restores. A recorder does not decide how a step is made: it watches one
(`Recorder.step`), or it is given a function that makes one and calls it again with weights moved
by units in the last place (`Recorder.run`): only then is the width of rounding measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.distance import PART
from dualml.errors import UserError
from dualml.parity.envelope import perturb
from dualml.parity.models.gap import gap, lost
from dualml.parity.models.operations import Operation, Tape
from dualml.parity.models.partners import Tensor
from dualml.parity.models.subject import line_of, reason
from dualml.parity.models.trace import OUTPUT, Arrays, Trace, digest, key, leaves

#: Draws: weights moved by 1, 2 and 4 units in the last place.
DRAWS = 3
#: Relative; what two runs of a step may differ by and still be the same: other kernels, no chance.
SAME = 1e-5
#: How far weights are moved that shall be unlike each other.
UNLIKE = 1e-3


class Recorder:
    """Writes the first steps of a training script into a folder, see `dualml.parity.models.trace`.

    Args:
        model: the whole model; its outputs and those of all its modules are noted.
        folder: for ``trace.safetensors`` and ``trace.json``, written anew after every step; None
            keeps the trace in memory.
        optimizer: whose state is noted after every update.
        steps: how many are recorded; later ones pass untouched.
        draws: how often `run` repeats each step with moved weights; 0 measures no rounding.

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
        self.drawn: dict[int, Any] = {}
        self.now: Arrays | None = None
        self.tape: Tape | None = None
        #: In a draw: random numbers and units for the rounding of what comes behind the outputs.
        self.rounding: tuple[np.random.Generator, int] | None = None
        self.answered = False

    # What a framework says.
    def check(self, model: Any) -> None:
        """Look at the model, whether it can be recorded.

        Raises:
            UserError: not a model of this framework, or of a mode that cannot be watched.
        """

    def environment(self) -> dict[str, str]:
        """Versions, device and threads."""
        raise NotImplementedError

    def named(self) -> dict[str, Any]:
        """Parameters, then buffers, by name; one that has two names once."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """Parameters and buffers, in the order of the framework."""
        raise NotImplementedError

    def modules(self) -> dict[str, str]:
        """Name → type of every submodule; not the model itself."""
        raise NotImplementedError

    def weights(self) -> Arrays:
        """Copies of all `tensors`."""
        raise NotImplementedError

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Put these values in their place, each of its tensor's shape."""
        raise NotImplementedError

    def gradients(self) -> Arrays:
        """Those that the framework keeps; none where it does not."""
        return {}

    def named_gradients(self, gradients: Any) -> Arrays:
        """What the script passed to `saw`, by name.

        Raises:
            UserError: not one for each trained parameter.
        """
        raise NotImplementedError

    def slots(self) -> dict[str, Arrays]:
        """Slot → name → copy of the optimizer's state."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """Weights, buffers, optimizer: all that a step changes."""
        raise NotImplementedError

    def restore(self, kept: Any) -> None:
        """Go back to a `snapshot`."""
        raise NotImplementedError

    def is_tensor(self, value: Any) -> bool:
        """Whether it is a tensor of the framework."""
        raise NotImplementedError

    def array(self, tensor: Any) -> NDArray[Any]:
        """A copy on the host."""
        raise NotImplementedError

    def like(self, array: NDArray[Any], tensor: Any) -> Any:
        """A tensor with the values of ``array``, of the type and on the device of ``tensor``."""
        raise NotImplementedError

    def hooked(self, tell: Callable[[str, Any], None]) -> contextlib.AbstractContextManager[None]:
        """Inside, every module's output is told by name; the model's own as ``""``."""
        raise NotImplementedError

    def tape_of_step(self) -> Tape:
        """An empty tape that knows this model's parameters and modules."""
        raise NotImplementedError

    def watching(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, random numbers are those of both sides, and every operation is told to `tape`."""
        return contextlib.nullcontext()

    # What a script calls.
    @contextlib.contextmanager
    def step(self, *inputs: Any) -> Iterator[Recorder]:
        """Note what happens inside: one forward, one backward, one update.

        Args:
            inputs: what the step trains on, targets too; only their digests are kept.
        """
        if self.done:
            yield self
            return
        self.begin(inputs)
        try:
            with self.noting(inputs) as noted:
                yield self
        except Exception as error:  # what was seen until then shows where it went wrong
            self.trace.raised = reason(error) + line_of(error, self.skip)
            self.keep(noted)
            raise
        self.keep(noted)
        self.trace.steps += 1
        self.write()

    def saw(self, *, loss: Any = None, gradients: Any = None) -> None:
        """Note what hooks do not see.

        Args:
            loss: the mean loss of this step.
            gradients: one per trained parameter, in their order, or by name; PyTorch keeps them.
        """
        if self.now is None:
            return  # after the last recorded step
        if loss is not None:
            value = self.array(loss) if self.is_tensor(loss) else np.asarray(loss)
            self.now["loss/loss"] = value.astype(np.float64).reshape(())
        if gradients is not None:
            self.note_gradients(self.named_gradients(gradients))

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Make one step by calling ``function(*inputs)``, and know what rounding does to it.

        The function makes one whole update and says its loss with `saw`. It is called once for the
        script, once more in the first step (does it repeat?), and once for each draw; afterwards
        everything is as the first call left it. Changes outside of model and optimizer (a
        schedule, a counter) belong outside of the function.
        """
        if self.done:
            return function(*inputs)
        start = self.snapshot()
        with self.step(*inputs):
            result = function(*inputs)
        end, step = self.snapshot(), self.trace.steps
        base = {n: v for n, v in self.trace.arrays.items() if n.split("/")[1] == f"{step:08d}"}
        try:
            if step == 1:
                self.restore(start)
                self.trace.random = self.differing(base, self.again(function, inputs))
                self.trace.repeated = True
            if self.trace.random is None:
                for draw in range(self.draws):
                    self.draw(draw, self.drawn.get(draw, start), function, inputs, base)
        finally:
            self.restore(end)
        self.write()
        return result

    def write(self) -> None:
        if self.folder:
            self.trace.write(Path(self.folder))

    @property
    def done(self) -> bool:
        return self.trace.steps >= self.limit

    def calls(self, forward: Callable[..., Any], inputs: Sequence[Any]) -> list[Operation]:
        """The operations of a forward pass; none where it fails. Everything is as it was after it.

        Its weights are moved, each otherwise: scales of one would all be known as the same tensor.
        """
        start, rng = self.snapshot(), np.random.default_rng(self.seed)
        self.load(
            {
                name: (value + UNLIKE * rng.standard_normal(value.shape)).astype(value.dtype)
                for name, value in self.weights().items()
                if finite(value)
            }
        )
        self.tape = tape = self.tape_of_step()
        try:
            for i, one in enumerate(inputs):
                if self.is_tensor(one):
                    tape.known(one, f"input:{i}")
            with contextlib.suppress(Exception):  # the first step will say it
                forward(*inputs)
                return tape.calls
            return []
        finally:
            self.tape = None
            self.restore(start)

    # How it is noted.
    def begin(self, inputs: Sequence[Any]) -> None:
        if not self.trace.inputs:
            for name, value in self.weights().items():
                self.trace.arrays[key("parameters", 0, name)] = value
        arrays = [self.as_array(one) for one in inputs]
        self.trace.inputs.append([digest(one) for one in arrays if one is not None])

    def as_array(self, value: Any) -> NDArray[Any] | None:
        if self.is_tensor(value):
            return self.array(value)
        return np.asarray(value) if isinstance(value, np.ndarray | int | float) else None

    @contextlib.contextmanager
    def noting(self, inputs: Sequence[Any]) -> Iterator[Arrays]:
        """Fill one step's arrays, as ``PHASE/NAME``, in the order of execution."""
        noted: Arrays = {}
        calls: dict[str, int] = {}
        self.now, self.answered = noted, False
        # Operations of the first step: later ones are the same calls with other numbers.
        self.tape = self.tape_of_step() if len(self.trace.inputs) == 1 else None
        if self.tape is not None:
            for i, one in enumerate(inputs):
                if self.is_tensor(one):
                    self.tape.known(one, f"input:{i}")

        def tell(module: str, output: Any) -> None:
            calls[module] = count = calls.get(module, 0) + 1
            self.answered = self.answered or not module
            name = (module or OUTPUT) + (f"#{count}" if count > 1 else "")
            for tail, tensor in leaves(output, self.is_tensor, name):
                noted[f"forward/{tail}"] = self.array(tensor)

        try:
            with self.hooked(tell):
                yield noted
            if not any(name.startswith("gradient/") for name in noted):
                self.note_gradients(self.gradients())
            trained = {one.name for one in self.trace.tensors if one.trained}
            for name, value in self.weights().items():
                noted[f"update/{name}" if name in trained else f"state/buffer/{name}"] = value
            for slot, values in self.slots().items() if self.optimizer is not None else ():
                for name, value in values.items():
                    noted[f"state/{slot}/{name}"] = value
        finally:
            self.now = None
            if self.tape is not None:
                noted |= {f"operation/{name}": value for name, value in self.tape.arrays.items()}

    def note_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> None:
        if self.now is not None:
            self.now |= {f"gradient/{name}": value for name, value in gradients.items()}

    def keep(self, noted: Arrays) -> None:
        """Take a step's arrays into the trace; written at once where the step ended badly."""
        self.trace.arrays |= at_step(len(self.trace.inputs), noted)
        if self.tape is not None:
            self.trace.operations = list(self.tape.calls)
        self.trace.order.append([n.partition("/")[2] for n in noted if n.startswith("forward/")])
        if self.trace.raised:
            self.write()

    # How it is repeated.
    def again(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Arrays:
        """The step once more, from the state that is there, keyed like the trace."""
        with self.noting(inputs) as noted:
            function(*inputs)
        return at_step(self.trace.steps, noted)

    def differing(self, base: Arrays, repeated: Arrays) -> dict[str, str] | None:
        """The first array in which two runs of the same step differ by more than rounding.

        A kernel may round by where its memory lies, or by which thread was faster: what two runs
        differ by counts as rounding then.
        """
        widths: dict[str, float] = {}
        for name, value in base.items():
            other = repeated.get(name)
            if other is not None and same_bits(value, other):
                continue
            far = float("inf") if other is None else gap(value, other)
            if far <= SAME:
                widths[name] = far
            elif not name.startswith("operation/"):
                phase, _, rest = name.split("/", 2)
                module = rest.partition("#")[0].partition("[")[0]
                kind = self.trace.modules.get(module, "")
                return {"phase": phase, "name": rest, "type": kind}
        if widths and self.draws:
            self.trace.envelope = {**(self.trace.envelope or {}), **widths}
        return None

    def draw(
        self,
        number: int,
        start: Any,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        base: Arrays,
    ) -> None:
        """One more run of the step with weights and inputs moved, from where this draw was."""
        self.restore(start)
        step, seed = self.trace.steps, self.seed
        trained = {one.name for one in self.trace.tensors if one.trained}
        weights = {n: w for n, w in self.weights().items() if n in trained and finite(w)}
        self.load(perturb(weights, seed, number, step))
        moved = [self.moved(one, f"input {i}", number) for i, one in enumerate(inputs)]
        self.rounding = (np.random.default_rng([seed, number, step]), 2**number)
        try:
            repeated = self.again(function, moved)
        finally:
            self.rounding = None
        if step < self.limit:  # where the next step of this draw begins
            self.drawn[number] = self.snapshot()
        widths = self.trace.envelope = self.trace.envelope or {}
        for name, value in repeated.items():
            if name in base and not lost(base[name]):
                widths[name] = max(widths.get(name, 0.0), gap(base[name], value))
        self.trace.draws = max(self.trace.draws, number + 1)

    def moved(self, value: Any, name: str, number: int) -> Any:
        """An input moved like a weight: layers before the first weight round, too.

        Not numbers that are all whole: tokens, labels, masks, pixels that were counted.
        """
        if not self.is_tensor(value):
            return value
        array = self.array(value)
        if array.dtype.kind != "f" or not finite(array) or (array == np.round(array)).all():
            return value
        near = perturb({name: array}, self.seed, number, self.trace.steps)[name]
        return self.like(np.where(array == 0, 0, near).astype(array.dtype), value)


def at_step(step: int, noted: Arrays) -> Arrays:
    """``PHASE/NAME`` keyed like a trace."""
    parts = {name: name.partition("/") for name in noted}
    return {key(parts[name][0], step, parts[name][2]): value for name, value in noted.items()}


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays are one, bit for bit; the same NaN is the same."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in (a, b))
    return all(
        np.array_equal(a[at : at + PART], b[at : at + PART]) for at in range(0, a.size, PART)
    )


def finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())
