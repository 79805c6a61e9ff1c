"""Recording of the first steps of a MindSpore script, for a comparison with a PyTorch one
elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parity.models.attributes import (
    NAMES,
    SavedValue,
    capture_attributes,
    capture_numbers,
    plain_entries,
    restore_attributes,
)
from dualml.parity.models.operations import Tape
from dualml.parity.models.optimizer_facts import ParameterGroup, join_groups, plain_settings
from dualml.parity.models.partners import Tensor
from dualml.parity.models.recorder import Recorder as Base
from dualml.parity.models.rng import SharedRng
from dualml.parity.ranks.member import GroupAccess
from dualml_ms.algorithms.optim import RuleOptimizer, lazy_state
from dualml_ms.common.environment import environment
from dualml_ms.parity.operations import SKIP, OperationTracer
from dualml_ms.parity.ranks import join_group
from dualml_ms.parity.rng import SharedRngMode

Arrays = dict[str, NDArray[Any]]


def copy_tensor(value: Any) -> ms.Tensor | None:
    """Return a copy of a tensor; None for any other value."""
    return value.copy() if isinstance(value, ms.Tensor) else None


def is_same(a: ms.Tensor, b: ms.Tensor) -> bool:
    """Return whether two tensors have the same shape and numbers."""
    return np.array_equal(a.asnumpy(), b.asnumpy())


def is_saved_elsewhere(value: Any) -> bool:
    """Return whether a value is a parameter or several, which are saved by name, or an operator,
    type or Python module, which no step changes."""
    kinds = (ms.Parameter, ms.ParameterTuple, ops.Primitive, type, ModuleType)
    return isinstance(value, kinds)


#: Attributes of MindSpore's optimizers → PyTorch's names of the same state. `nn.SGD` stores in
#: ``stat`` only whether a first step was made.
SLOTS = {
    "moment1": "exp_avg",
    "moment2": "exp_avg_sq",
    "moments1": "exp_avg",
    "moments2": "exp_avg_sq",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "max_exp_avg_sq": "max_exp_avg_sq",
    "moments": "momentum_buffer",
    "ms": "square_avg",
    "mg": "grad_avg",
    "moment": "momentum_buffer",
}
#: Optimizer classes → the meaning of their attribute ``accum``.
ACCUM = {"SGD": "momentum_buffer", "Adagrad": "sum"}


#: Attributes of MindSpore's optimizers that are settings of all parameters.
SETTINGS = (
    *("beta1", "beta2", "eps", "epsilon", "momentum", "dampening", "nesterov", "use_nesterov"),
    *("use_amsgrad", "decay", "centered"),
)


def plain_number(value: Any) -> Any:
    """Return a tensor of one element as a number; any other value itself."""
    if isinstance(value, ms.Tensor) and value.size == 1:
        return float(value.asnumpy().reshape(()))
    return value


def assign_values(parameter: ms.Parameter, value: NDArray[Any]) -> None:
    """Set a parameter in place: MindSpore's own optimizers are compiled, and after a ``set_data``
    would continue to use its previous memory."""
    ops.assign(parameter, share_array(value, parameter.dtype))


def memory_address(tensor: ms.Tensor) -> int | None:
    """Return the address of a tensor's first number in the memory of its device; None if this
    version of MindSpore does not tell it, or the tensor has no memory."""
    address = getattr(tensor, "_data_ptr", None)
    return None if address is None else int(address()) or None


def share_array(array: NDArray[Any], dtype: Any) -> ms.Tensor:
    """Return ``array`` as a tensor of ``dtype``. A float32 tensor shares the memory of a non-empty
    float32 array, so it must be read before the array changes; any other is a copy."""
    plain = array.dtype == np.float32 and dtype == ms.float32
    return ms.Tensor.from_numpy(array) if plain and array.size else ms.Tensor(array, dtype)


def updated_parameters(model: nn.Cell, optimizer: Any) -> list[ms.Parameter]:
    """Return the parameters that an optimizer updates, in its order; all trainable ones of
    ``model`` if it lists none, or is None."""
    own = getattr(optimizer, "parameters", None)
    return list(own if is_tensor_sequence(own) else model.trainable_params())


def is_tensor_sequence(value: Any) -> bool:
    """Return whether a value is a non-empty list, tuple or `ParameterTuple` of tensors alone."""
    row = isinstance(value, ms.ParameterTuple | list | tuple)
    return row and len(value) > 0 and all(isinstance(one, ms.Tensor) for one in value)


@keep_former_members
class Recorder(Base):
    """MindSpore implementation of `dualml.parity.models.recorder.Recorder`.

    Cells are recorded by forward hooks, which MindSpore calls in PyNative mode only; MindSpore
    stores no gradients, so they must be passed to `saw`.

    Raises:
        UserError: in graph mode.

    Example:
        >>> import tempfile
        >>> ms.set_context(mode=ms.PYNATIVE_MODE)
        >>> cell = nn.Dense(3, 1)
        >>> optimizer = nn.SGD(cell.trainable_params(), 0.1)
        >>> recorder = Recorder(cell, tempfile.mkdtemp(), optimizer)
        >>> gradient = ms.value_and_grad(lambda x: cell(x).mean(), None, optimizer.parameters)
        >>> x = ms.ops.ones((2, 3))
        >>> with recorder.step(x):
        ...     loss, gradients = gradient(x)
        ...     recorder.saw(loss=loss, gradients=gradients)
        ...     _ = optimizer(gradients)
        >>> recorder.trace.names("update", 1)
        ['weight', 'bias']
    """

    framework = "mindspore"
    skip = SKIP

    def check(self, model: Any) -> None:
        """Raise UserError unless ``model`` is a cell and MindSpore is in PyNative mode."""
        if not isinstance(model, nn.Cell):
            raise UserError(f"expected a mindspore.nn.Cell; received {type(model).__name__}")
        if ms.get_context("mode") != ms.PYNATIVE_MODE:
            raise UserError(
                "a compiled graph calls no hooks; record in PyNative mode: "
                "ms.set_context(mode=ms.PYNATIVE_MODE)"
            )

    def environment(self) -> dict[str, str]:
        """Return the versions and the device that decide the numbers, as flat text."""
        return environment(ms.get_context("device_target"), 0)

    def named_tensors(self) -> dict[str, ms.Parameter]:
        """Return name → parameter of the model, buffers included."""
        return dict(self.model.parameters_and_names())

    def tensors(self) -> list[Tensor]:
        """Return name, shape and whether it is trained of every parameter, buffers included, in
        MindSpore's order."""
        return [
            Tensor(n, tuple(p.shape), bool(p.requires_grad))
            for n, p in self.named_tensors().items()
        ]

    def stored_names(self) -> dict[str, list[str]]:
        """Return name → list of one: the parameter's own name, under which
        `mindspore.save_checkpoint` stores it."""
        return {name: [str(p.name)] for name, p in self.named_tensors().items()}

    def modules(self) -> dict[str, str]:
        """Return dotted name → class name of every cell inside the model, without the model
        itself."""
        return {name: type(cell).__name__ for name, cell in self.model.cells_and_names() if name}

    def weights(self) -> Arrays:
        """Return name → host copy of each parameter, buffers included."""
        return {name: self.array(p) for name, p in self.named_tensors().items()}

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Assign the values, by name, to the model's parameters, in place; those not named stay as
        they are, and an unknown name raises KeyError."""
        named = self.named_tensors()
        for name, value in weights.items():
            assign_values(named[name], np.ascontiguousarray(value).reshape(value.shape))

    def gradients_by_name(self, gradients: Any) -> Mapping[str, Any]:
        """Return name → gradient. A mapping is returned as it is; a sequence has the order of the
        optimizer's parameters. Raise UserError for a sequence of another length than these."""
        if not isinstance(gradients, Mapping):
            names = {id(p): name for name, p in self.named_tensors().items()}
            order = [
                names.get(id(p), p.name) for p in updated_parameters(self.model, self.optimizer)
            ]
            if len(order) != len(gradients):
                raise UserError(
                    f"saw(gradients=…): {len(order)} trained parameters, {len(gradients)} gradients"
                )
            gradients = dict(zip(order, gradients, strict=True))
        named: Mapping[str, Any] = gradients
        return named

    def optimizer_state(self) -> Mapping[str, Mapping[str, Any]]:
        """Return state name → parameter name → tensor, or array that is made when it is looked up.
        The state is every attribute of the optimizer that is a list of tensors with the parameters'
        shapes, but not the parameters; its name is PyTorch's by `SLOTS`, else the attribute's."""
        own, names = self.optimizer, {id(p): name for name, p in self.named_tensors().items()}
        parameters = updated_parameters(self.model, own)
        order = [names.get(id(p), p.name) for p in parameters]
        if isinstance(own, RuleOptimizer):
            return lazy_state(own, order)
        slots = {}
        for attribute, value in vars(own).items():
            if not is_tensor_sequence(value) or attribute == "stat":
                continue
            if [id(p) for p in value] == [id(p) for p in parameters]:
                continue
            if [p.shape for p in value] != [p.shape for p in parameters]:
                continue
            name = ACCUM.get(type(own).__name__) if attribute == "accum" else None
            slot = name or SLOTS.get(attribute, attribute)
            slots[slot] = dict(zip(order, value, strict=True))
        return slots

    def learning_rates(self) -> list[float]:
        """Return the constant learning rate of each parameter group, one for an optimizer without
        groups; empty if one of them is neither a float nor a tensor, such as a schedule."""
        own = getattr(self.optimizer, "learning_rate", None)
        groups = getattr(self.optimizer, "param_groups", None)
        rates = [own] if groups is None else [group.get("lr") for group in groups]
        if getattr(self.optimizer, "is_group_lr", False):
            rates = list(own) if isinstance(own, list | tuple | ms.ParameterTuple) else [None]
        if not all(isinstance(rate, ms.Tensor | float) for rate in rates):
            return []
        values = [rate.asnumpy() if isinstance(rate, ms.Tensor) else rate for rate in rates]
        return [float(value) for value in values if np.ndim(value) == 0]

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the model's parameters that the optimizer updates, grouped by equal settings
        (learning rate, weight decay, `SETTINGS`); empty if it updates none of them."""
        own, names = self.optimizer, {id(p): name for name, p in self.named_tensors().items()}
        groups = getattr(own, "param_groups", None)
        if groups is not None:
            plain = [{k: plain_number(v) for k, v in group.items()} for group in groups]
            pairs = zip(groups, map(plain_settings, plain), strict=True)
            rows = [(p, settings) for group, settings in pairs for p in group["params"]]
        else:
            parameters = updated_parameters(self.model, own)
            common = {key: plain_number(getattr(own, key, None)) for key in SETTINGS}
            each = {"weight_decay": getattr(own, "weight_decay", None)}
            each["lr"] = getattr(own, "learning_rate", None)
            rows = []
            for at, p in enumerate(parameters):
                mine = {
                    key: plain_number(
                        v[at] if isinstance(v, list | tuple | ms.ParameterTuple) else v
                    )
                    for key, v in each.items()
                }
                rows.append((p, plain_settings({**common, **mine})))
        return join_groups([(names[id(p)], s) for p, s in rows if id(p) in names])

    def count_updates(self) -> int:
        """Return the optimizer's ``global_step``, the number of updates it made; 0 if it has
        none."""
        count = plain_number(getattr(self.optimizer, "global_step", None))
        return int(count) if isinstance(count, float | int) else 0

    def join_group(self, group: Any) -> GroupAccess:
        """Return access to a communication group of ranks by its name, or with True to all ranks;
        raise UserError if MindSpore's communication is not initialised or this process is not in
        it."""
        return join_group(group)

    def unique_parameters(self) -> list[ms.Parameter]:
        """Return the parameters of the model, buffers included, then those that only the optimizer
        has, such as its state, each once."""
        held = getattr(self.optimizer, "get_parameters", None)
        own = list(held()) if held is not None else updated_parameters(self.model, self.optimizer)
        return list({id(p): p for p in [*self.named_tensors().values(), *own]}.values())

    def snapshot(self) -> Any:
        """Return copies of all parameters and, if there is an optimizer, of its state and other
        attributes, as an opaque value for `restore` and `adopt_changes`."""
        own = (
            []
            if self.optimizer is None
            else capture_attributes(self.optimizer, copy_tensor, is_saved_elsewhere)
        )
        names = {id(p): name for name, p in self.named_tensors().items()}
        kept = [(p, self.shelve(p, names.get(id(p), ""))) for p in self.unique_parameters()]
        return kept, own

    def restore(self, kept: Any) -> None:
        """Assign the values of a `snapshot` to parameters and optimizer, in place."""
        parameters, own = kept
        for p, shelved in parameters:
            ops.assign(p, shelved.recall())
        restore_attributes(own, copy_tensor)

    def adopt_changes(self, start: Any, end: Any) -> None:
        """Assign, in place, the parameters (tensor learning rates among them) that differ between
        the snapshots ``start`` and ``end``, and all numbers, texts and flags of the optimizer, as
        they are in ``end``."""
        old = {id(p): shelved for p, shelved in start[0]}
        for p, shelved in end[0]:
            value = shelved.recall()
            if id(p) not in old or not is_same(old[id(p)].recall(), value):
                ops.assign(p, value)
        restore_attributes(plain_entries(end[1]), copy_tensor)

    def copy_tensor(self, value: Any) -> ms.Tensor | None:
        """Return a copy of a tensor; None for any other value."""
        return copy_tensor(value)

    def is_saved(self, value: Any) -> bool:
        """Return whether a value needs no copy of its own: a parameter, which is saved by name, a
        cell, or an operator, a type or a Python module, which no step changes."""
        return isinstance(value, nn.Cell) or is_saved_elsewhere(value)

    def capture_tensors(self, value: Any) -> Callable[[], None] | None:
        """Return a function that restores the present numbers of ``value``: the counters of a cell,
        and its parameters, or a parameter, outside of the recorded model; None for any other value.
        Other tensors do not change."""
        counters: list[SavedValue] = []
        if isinstance(value, nn.Cell):
            parameters = value.get_parameters()
            found = capture_numbers(cell for _, cell in value.cells_and_names())
            framework = {NAMES, *vars(nn.Cell())}  # these change when a graph is compiled
            counters = [one for one in found if one[1] not in framework]
        else:
            parameters = [value] if isinstance(value, ms.Parameter) else []
        known = {id(p) for p in self.unique_parameters()}
        own = [p for p in parameters if id(p) not in known]
        if not own and not counters:
            return None
        copies = [(p, self.shelve(p)) for p in own]

        def restore_model() -> None:
            for p, shelved in copies:
                ops.assign(p, shelved.recall())
            restore_attributes(counters, copy_tensor)

        return restore_model

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a MindSpore tensor; parameters are."""
        return isinstance(value, ms.Tensor)

    def view(self, tensor: ms.Tensor) -> NDArray[Any]:
        """Return a tensor as a NumPy array, which may share its memory; bfloat16 becomes
        float32."""
        if tensor.dtype == ms.bfloat16:
            tensor = tensor.astype(ms.float32)
        return tensor.asnumpy()

    def shared_view(self, tensor: ms.Tensor) -> NDArray[np.float32] | None:
        """Return a contiguous float32 tensor in the memory of this process as an array that shares
        it; None for any other one."""
        array = self.view(tensor)
        plain = array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
        # A copy from another device is no view.
        return array if plain and memory_address(tensor) == array.ctypes.data else None

    def duplicate(self, tensor: ms.Tensor) -> ms.Tensor:
        """Return a copy of a tensor that is no parameter."""
        return ms.Tensor(tensor.asnumpy().copy(), tensor.dtype)

    def sample(self, tensor: ms.Tensor) -> ms.Tensor:
        """Return a scalar tensor, 0, of the dtype of ``tensor``."""
        return ms.Tensor(0, tensor.dtype)

    def tensor_like(self, array: NDArray[Any], tensor: ms.Tensor) -> ms.Tensor:
        """Make a tensor of ``array`` with the dtype of ``tensor``; it may share its memory."""
        return share_array(array, tensor.dtype)

    def make_tape(self) -> Tape:
        """Return an empty `Tape`, a record of the operations of one step, that knows the names of
        the model's cells and, as ``parameter:NAME``, its parameters."""
        tape = Tape(
            self.array, self.skip, {id(one): name for name, one in self.model.cells_and_names()}
        )
        tape.address = memory_address
        for name, one in self.named_tensors().items():
            fixed = bool(one.requires_grad)  # a forward pass may change a buffer
            tape.register(one, f"parameter:{name}", is_fixed=fixed)
        return tape

    @contextlib.contextmanager
    def watch_operations(self) -> Iterator[None]:
        """Inside the block, replace MindSpore's random numbers by those that dualml draws from the
        recorder's seed for both frameworks, or, if `seeded`, seed MindSpore's own generators with
        it. If there is a tape and the model is not compiled, also record all operators that
        PyNative mode runs."""
        traced = self.tape is not None and not self.compiled
        watch = OperationTracer(self.tape) if traced else contextlib.nullcontext()
        if self.seeded:
            ms.set_seed(self.seed)
        draws = contextlib.nullcontext() if self.seeded else SharedRngMode(SharedRng(self.seed))
        with draws, watch:
            yield

    @contextlib.contextmanager
    def hook_modules(self, tell: Callable[[str, Any], None]) -> Iterator[None]:
        """Inside the block, call ``tell(name, output)`` after the forward pass of the model, whose
        name is empty, and of each cell in it; of a compiled model, after its own forward pass
        only."""

        def hook(name: str) -> Callable[..., None]:
            return lambda cell, given, output: tell(name, output)

        cells = [("", self.model)] if self.compiled else list(self.model.cells_and_names())
        handles = [cell.register_forward_hook(hook(name)) for name, cell in cells]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
