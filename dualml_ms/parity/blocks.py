"""Parts of a MindSpore model that run with weights of the caller; implements
`dualml.parity.models.lockstep.access.BlockAccess`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.common._grad_function import _Function

from dualml.parity.models.lockstep.access import BlockCall, CallFactory, Rebuild
from dualml.parity.models.lockstep.structure import flatten
from dualml_ms.parity.recorder import updated_parameters

Weights = Mapping[str, ms.Tensor]


def is_tensor(value: Any) -> bool:
    """Return whether a value is a MindSpore tensor."""
    return isinstance(value, ms.Tensor)


def copy_tensor(tensor: ms.Tensor) -> ms.Tensor:
    """Return a copy of a tensor that belongs to no graph of gradients."""
    return ms.Tensor(tensor.asnumpy() if tensor.dtype != ms.bfloat16 else tensor.copy())


@contextlib.contextmanager
def building_empty() -> Iterator[None]:
    """Let the parameters of all cells that are made inside the block have a shape, but no memory,
    if they are made from an initializer; those made of arrays get memory as usual."""
    before = getattr(ms.Parameter, "init_param", True)
    ms.Parameter.init_param = False  # as `mindspore.nn.utils.no_init_parameters` does
    try:
        yield
    finally:
        ms.Parameter.init_param = before


class BlockFunction(_Function):  # type: ignore[misc]
    """A `BlockCall`, one call of a block, as a single node of the graph of gradients: its gradients
    are those that the call itself computes."""

    @staticmethod
    def forward(ctx: Any, call: BlockCall, anchor: ms.Tensor, *tensors: Any) -> Any:
        """Return the outputs of ``call`` for the input tensors, a tuple unless there is just one.
        ``anchor`` is a trained parameter: with it among the inputs the node always gets
        gradients."""
        ctx.call = call
        outputs = tuple(call.forward(tensors))
        ctx.mark_non_differentiable(*(one for one in outputs if not one.is_floating_point()))
        return outputs if len(outputs) != 1 else outputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradients of all inputs of `forward`: None for the call, 0 for the anchor,
        then those of the input tensors."""
        return None, ms.Tensor(np.zeros((), np.float32)), *ctx.call.backward(gradients)


class BlockAccess:
    """Access to the blocks (cells that run with weights of the caller) of a model that was made
    inside `building_empty`; converts the model's floating-point parameters to ``dtype``.

    Args:
        model: the model.
        dtype: name of the type of its floating-point numbers.
    """

    def __init__(self, model: nn.Cell, dtype: str) -> None:
        self.model, self.dtype = model, getattr(ms, dtype)
        self.anchor = ms.Parameter(ms.Tensor(np.zeros((), np.float32)), name="dualml.anchor")
        self.forwards: dict[str, Callable[..., Any]] = {}
        self.names = dict(model.parameters_and_names())
        self.cells = dict(model.cells_and_names())
        self.resident: set[str] = set()
        for cell in self.cells.values():
            cell._init_flag = True  # its first call would give its parameters memory
        for name in self.names.keys() - {*self.empty_parameters()}:
            self.names[name].init_data()
        for parameter in self.names.values():
            if parameter.is_floating_point() and parameter.dtype != self.dtype:
                parameter.set_dtype(self.dtype)

    def is_float(self, tensor: ms.Tensor) -> bool:
        """Return whether a tensor has floating-point numbers."""
        return bool(tensor.is_floating_point())

    def empty_parameters(self) -> list[str]:
        """Return the names of the trained floating-point parameters, which have no memory; all
        others have."""
        return [n for n, p in self.names.items() if p.requires_grad and p.is_floating_point()]

    def shared_parameters(self) -> list[str]:
        """Return the names of parameters that several cells have, such as tied embeddings."""
        count = Counter(id(p) for cell in self.cells.values() for p in cell._params.values())
        return [name for name, p in self.names.items() if count[id(p)] > 1]

    def load(self, weights: Weights) -> None:
        """Set parameters of the model, by name, to these tensors, converted to their types,
        permanently."""
        for name, tensor in weights.items():
            self.names[name].set_data(tensor.astype(self.names[name].dtype))
            self.resident.add(name)

    def load_constant(self, name: str, tensor: ms.Tensor) -> None:
        """Set the parameter ``name``, one that has memory, to this tensor, converted to its
        type."""
        self.names[name].set_data(tensor.astype(self.names[name].dtype))

    def intercept(self, name: str, make_call: CallFactory, *, differentiated: bool) -> None:
        """Replace calls of the block ``name``, from now on, by the `BlockCall` that ``make_call``
        returns for their arguments; the block's own function is kept for `run` and `differentiate`.

        Args:
            differentiated: whether the calls are nodes of a graph of gradients.
        """
        cell = self.cells[name]
        self.forwards[name] = cell.construct

        def construct(*args: Any, **kwargs: Any) -> Any:
            """Make one call of the block by a `BlockCall`."""
            tensors, rebuild = flatten((args, kwargs), is_tensor)
            call = make_call(name, tensors, rebuild)
            if differentiated:
                outputs = BlockFunction.apply(call, self.anchor, *tensors)
                outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            else:
                outputs = call.forward(tensors)
            return call.rebuild_output(outputs)

        cell.construct = construct

    @contextlib.contextmanager
    def loaded(self, name: str, weights: dict[str, ms.Tensor]) -> Iterator[dict[str, ms.Parameter]]:
        """Inside the context, let the block ``name`` have these weights, by their names in the
        model; yield the new parameters under these names. ``weights`` is emptied."""
        new, replaced = {}, []
        by_id = {id(self.names[full]): full for full in weights}
        for full in list(weights):
            old = self.names[full]
            # A parameter copies its tensor: both together would be twice the block's weights.
            tensor = weights.pop(full)
            new[full] = ms.Parameter(tensor, name=full, requires_grad=old.requires_grad)
            del tensor
        for _, inner in self.cells[name].cells_and_names():
            for key, own in list(inner._params.items()):
                if id(own) in by_id:
                    replaced.append((inner, key, own))
                    inner._params[key] = new[by_id[id(own)]]
        try:
            yield new
        finally:
            for inner, key, own in replaced:
                inner._params[key] = own
            for parameter in new.values():  # a cycle that would keep the weights for long
                parameter.param_info.obj = None

    def run(
        self, name: str, weights: dict[str, Any], tensors: Sequence[Any], rebuild: Rebuild
    ) -> Any:
        """Return the output of the intercepted block ``name``, computed with ``weights``, which is
        emptied, from copies of the input ``tensors``, of which ``rebuild`` makes the arguments."""
        args, kwargs = rebuild([copy_tensor(one) for one in tensors])
        with self.loaded(name, weights):
            return self.forwards[name](*args, **kwargs)

    def differentiate(
        self,
        name: str,
        weights: dict[str, Any],
        tensors: Sequence[Any],
        rebuild: Rebuild,
        gradients: Sequence[Any],
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the gradients of an intercepted block's trained weights, by name, and of its input
        tensors, None for those that are not floating-point numbers.

        Args:
            weights: the block's weights by their names in the model; emptied.
            tensors: the input tensors, which are copied.
            rebuild: makes the block's arguments of the input tensors.
            gradients: gradients of the output tensors, None for those that have none.
        """
        inputs = [copy_tensor(one) for one in tensors]
        floats = [i for i, one in enumerate(inputs) if self.is_float(one)]
        with self.loaded(name, weights) as new:
            trained = {n: p for n, p in new.items() if p.requires_grad}

            def weigh(*leaves: Any) -> Any:
                """Return the sum over the floating-point outputs of output times gradient."""
                given = list(inputs)
                for i, leaf in zip(floats, leaves, strict=True):
                    given[i] = leaf
                args, kwargs = rebuild(given)
                outputs, _ = flatten(self.forwards[name](*args, **kwargs), is_tensor)
                total = None
                for output, gradient in zip(outputs, gradients, strict=True):
                    if gradient is not None and self.is_float(output):
                        part = ops.reduce_sum(output * gradient.astype(output.dtype))
                        total = part if total is None else total + part
                return total

            positions = tuple(range(len(floats))) or None
            parameters = ms.ParameterTuple(trained.values()) if trained else None
            found = ms.grad(weigh, positions, parameters)(*(inputs[i] for i in floats))
        if positions is None:
            of_inputs, of_weights = (), found
        else:
            of_inputs, of_weights = found if parameters is not None else (found, ())
        if isinstance(of_inputs, ms.Tensor):
            of_inputs = (of_inputs,)
        places = dict(zip(floats, of_inputs, strict=True))
        return (
            dict(zip(trained, of_weights, strict=True)),
            [places.get(i) for i in range(len(inputs))],
        )

    def step(
        self, loss: Callable[[Any, Any], Any], inputs: Sequence[Any], targets: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Make a forward and a backward pass of the whole model; return ``loss(outputs, targets)``,
        and the gradients of the trained parameters that `load` gave memory, by name."""
        trained = {n: p for n, p in self.names.items() if n in self.resident and p.requires_grad}

        def compute_loss() -> Any:
            """Return the loss of the model."""
            return loss(self.model(*inputs), targets)

        weights = ms.ParameterTuple([self.anchor, *trained.values()])
        value, gradients = ms.value_and_grad(compute_loss, None, weights)()
        return value, dict(zip(trained, gradients[1:], strict=True))

    @contextlib.contextmanager
    def updated(
        self,
        weights: dict[str, Any],
        gradients: Weights,
        make_optimizer: Callable[[nn.Cell], Callable[..., Any]],
    ) -> Iterator[tuple[nn.Cell, Callable[..., Any]]]:
        """Make one update of these weights, by their names in the model, with their gradients, by
        the optimizer that ``make_optimizer`` makes over a cell. Yield this cell, which has the new
        weights under the same names and computes nothing, and the optimizer. ``weights`` is
        emptied."""
        model, names = nn.Cell(auto_prefix=False), dict[int, str]()
        for name in list(weights):
            *path, last = name.split(".")
            cell = model
            for part in path:
                if part not in cell.name_cells():
                    cell.insert_child_to_cell(part, nn.Cell(auto_prefix=False))
                cell = cell.name_cells()[part]
            parameter = ms.Parameter(weights.pop(name), name=name)
            cell.insert_param_to_cell(last, parameter, check_name_contain_dot=False)
            names[id(parameter)] = name
        optimizer = make_optimizer(model)
        order = [names[id(p)] for p in updated_parameters(model, optimizer)]
        optimizer(tuple(gradients[name] for name in order))
        try:
            yield model, optimizer
        finally:
            state = getattr(optimizer, "get_parameters", model.get_parameters)()
            for parameter in [*model.get_parameters(), *state]:  # as in `loaded`
                parameter.param_info.obj = None

    def forward(self, inputs: Sequence[Any]) -> Any:
        """Return the whole model's output for these inputs."""
        return self.model(*inputs)

    def is_missing_weight(self, error: Exception) -> bool:
        """Return whether an error says that a parameter without memory was used."""
        return isinstance(error, RuntimeError) and "uninitialized" in str(error)
