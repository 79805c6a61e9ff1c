"""Cells that MindSpore's graph compiler translates: for one side of a comparison, and one at a time
to find the smallest that computes something else than PyNative mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.parity.models.probe import probe_weights
from dualml.parity.models.trace import iter_tensors

Arrays = dict[str, NDArray[Any]]
#: Mode of a side → level of the compiler's optimizations, as `mindspore.jit` takes it.
LEVELS = {"graph": "O0", "graph-O0": "O0", "graph-O1": "O1"}
#: Cells that draw random numbers in training mode.
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def compile_module(cell: nn.Cell, mode: str = "graph") -> None:
    """Let `mindspore.jit` translate a cell's ``construct``, for this cell only, which gets a class
    of its own until `restore_forward`; its hooks are called as before. The first call compiles.

    Args:
        mode: a key of `LEVELS`.
    """
    # A class of its own: the compiler reads ``construct`` from the class, and other cells of the
    # same class stay in PyNative mode.
    kind = type(cell)
    compiled = ms.jit(kind.construct, jit_level=LEVELS[mode])
    names = {"construct": compiled, "__module__": kind.__module__, "uncompiled": kind}
    cell.__class__ = type(kind.__name__, (kind,), names)


def restore_forward(cell: nn.Cell) -> None:
    """Undo `compile_module`: give a cell its own class again; any other cell stays as it is."""
    cell.__class__ = getattr(type(cell), "uncompiled", type(cell))


def has_active_dropout(model: nn.Cell) -> bool:
    """Return whether a Dropout of the model draws random numbers in its present mode."""
    for _, cell in model.cells_and_names():
        if isinstance(cell, DROPOUTS) and cell.training:
            rate = getattr(cell, "p", None)
            if (1 - getattr(cell, "keep_prob", 1.0) if rate is None else rate) > 0:
                return True
    return False


class ModuleReplay:
    """Runs a model's cells alone, on the inputs that each had in its first call in a forward pass,
    which is made now; the model's parameters are left as they were.

    Args:
        model: the whole model, in PyNative mode.
        inputs: inputs of the model.
        seed: seed of MindSpore's generators before each run.
    """

    def __init__(self, model: nn.Cell, inputs: Sequence[Any], seed: int) -> None:
        self.modules, self.seed = dict(model.cells_and_names()), seed
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        with contextlib.ExitStack() as stack:
            for name, cell in self.modules.items():
                handle = cell.register_forward_pre_hook(self.make_hook(name))
                stack.callback(handle.remove)
            ms.set_seed(seed)
            named = dict(model.parameters_and_names())
            kept = {name: to_array(value) for name, value in named.items()}
            model(*copy_value(tuple(inputs)))
            assign_all(named, kept)

    def make_hook(self, name: str) -> Callable[..., None]:
        """Return a hook, called before a cell's forward pass, that stores copies of the inputs of
        the first call of the cell ``name``."""

        def hook(cell: nn.Cell, args: tuple[Any, ...]) -> None:
            if name not in self.calls:
                self.calls[name] = copy_value(args), {}

        return hook

    def source(self, name: str) -> tuple[str, Callable[..., Any]]:
        """Return a cell's type name and the function that computes it."""
        return type(self.modules[name]).__name__, type(self.modules[name]).construct

    def run(self, name: str, mode: str, move: Callable[[Arrays], Arrays] | None) -> Arrays:
        """Run the cell of this name alone on its recorded inputs, forward and backward, and leave
        it as it was. Return its outputs (``output…``), then the gradients of its trained parameters
        (``gradient NAME``) and inputs (``gradient of input N``), then its other parameters (``state
        NAME``).

        Args:
            mode: a key of `LEVELS`, or empty for PyNative mode.
            move: function of the arrays of parameters by name, and of floating-point inputs as
                ``input N``, whose result replaces them for this run; None for no change.
        """
        cell, given = self.modules[name], copy_value(self.calls[name][0])
        named = dict(cell.parameters_and_names())
        kept = {key: to_array(value) for key, value in named.items()}
        positions = [i for i, value in enumerate(given) if is_real(value)]
        trained = {n: p for n, p in named.items() if p.requires_grad}
        if move is not None:
            arrays = {n: to_array(p) for n, p in trained.items()}
            arrays |= {f"input {i}": to_array(given[at]) for i, at in enumerate(positions)}
            moved = move(arrays)
            assign_all(trained, {n: moved[n] for n in trained})
            values = list(given)
            for i, at in enumerate(positions):
                values[at] = ms.Tensor(np.asarray(moved[f"input {i}"]), given[at].dtype)
            given = tuple(values)
        if mode:
            compile_module(cell, mode)
        try:
            ms.set_seed(self.seed)
            found = dict(run_with_gradients(cell, given, positions, trained))
            found |= {f"state {n}": to_array(p) for n, p in named.items() if n not in trained}
        finally:
            if mode:
                restore_forward(cell)
            assign_all(named, kept)
        return found


def run_with_gradients(
    cell: nn.Cell,
    given: Sequence[Any],
    positions: Sequence[int],
    trained: Mapping[str, ms.Parameter],
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield names and arrays: the outputs of a cell, ``output…``, then the gradients of their sum,
    weighted with fixed normal numbers: ``gradient NAME`` and ``gradient of input N``, N from 0.

    Args:
        given: inputs of the cell.
        positions: positions of the inputs that have a gradient.
        trained: parameters that have one, by name.
    """
    outputs: list[Any] = []

    def weighted(*values: Any) -> ms.Tensor:
        result = cell(*values)
        outputs.append(result)
        total = ms.Tensor(0.0)
        for i, (_, y) in enumerate(iter_tensors(result, is_tensor)):
            if y.is_floating_point():
                total = total + (y * ms.Tensor(probe_weights(i, y.shape), y.dtype)).mean()
        return total

    weights = ms.ParameterTuple(list(trained.values())) if trained else None
    at = tuple(positions) or None
    if weights is None and at is None:
        weighted(*given)
        inputs, gradients = (), ()
    else:
        _, both = ms.value_and_grad(weighted, at, weights)(*given)
        inputs, gradients = both if weights and at else ((), both) if weights else (both, ())
        inputs = inputs if isinstance(inputs, tuple | list) else (inputs,)
    for tail, y in iter_tensors(outputs[0], is_tensor):
        yield f"output{tail}", to_array(y)
    for name, gradient in zip(trained, gradients, strict=True):
        yield f"gradient {name}", to_array(gradient)
    for i, gradient in enumerate(inputs):
        yield f"gradient of input {i}", to_array(gradient)


def assign_all(parameters: Mapping[str, ms.Parameter], values: Mapping[str, Any]) -> None:
    """Set parameters in place to the arrays of the same names."""
    for name, value in values.items():
        ops.assign(parameters[name], ms.Tensor(np.asarray(value), parameters[name].dtype))


def copy_value(value: Any) -> Any:
    """Return a copy of a tensor, also inside of lists and tuples; any other value itself."""
    if isinstance(value, ms.Tensor):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)([copy_value(one) for one in value])
    return value


def is_tensor(value: Any) -> bool:
    """Return whether a value is a MindSpore tensor; parameters are."""
    return isinstance(value, ms.Tensor)


def is_real(value: Any) -> bool:
    """Return whether a value is a tensor of floating-point numbers."""
    return isinstance(value, ms.Tensor) and bool(value.is_floating_point())


def to_array(value: ms.Tensor) -> NDArray[Any]:
    """Return a host copy of a tensor; bfloat16 becomes float32."""
    value = value.astype(ms.float32) if value.dtype == ms.bfloat16 else value
    return value.asnumpy().copy()
