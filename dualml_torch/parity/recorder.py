"""Recording of the first steps of a PyTorch script, for a comparison with a MindSpore one
elsewhere."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.former_members import keep_former_members
from dualml.parity.models.attributes import (
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
from dualml.parity.models.snapshots import ShelvedTensor
from dualml.parity.models.surroundings import MAX_ELEMENTS
from dualml.parity.ranks.member import GroupAccess
from dualml.parity.ranks.shards import ShardPlace
from dualml_torch.common.environment import environment
from dualml_torch.parity.operations import SKIP, OperationTracer
from dualml_torch.parity.ranks import (
    LocalGradients,
    join_group,
    local_part,
    place_like,
    shard_place,
    unwrap_model,
    unwrap_optimizer,
)
from dualml_torch.parity.rng import SharedRngMode
from dualml_torch.parity.rounding import RoundingMode

Arrays = dict[str, NDArray[Any]]
#: Low precision → its unit in the last place, in those of float32: results move by one of them.
UNITS = {"fp16": 2**13, "bf16": 2**16}


def copy_tensor(value: Any) -> torch.Tensor | None:
    """Return a detached copy of a tensor; None for any other value."""
    return value.detach().clone() if torch.is_tensor(value) else None


def is_trained(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a parameter that gets a gradient."""
    return isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad


def is_scalar(value: Any) -> bool:
    """Return whether a value is a tensor of one element."""
    return torch.is_tensor(value) and value.numel() == 1


def make_zeros(parameter: torch.Tensor) -> torch.Tensor | NDArray[np.float32]:
    """Return zeros of a parameter's shape: a float32 array, or for a `DTensor` one distributed like
    it."""
    if shard_place(parameter):
        return torch.zeros_like(parameter)
    return np.zeros(tuple(parameter.shape), np.float32)


def is_saved_elsewhere(value: Any) -> bool:
    """Return whether a value is a parameter or module, which is saved with the state dict, or a
    type or Python module, which no step changes."""
    return isinstance(value, torch.nn.Parameter | torch.nn.Module | type | ModuleType)


def map_tensors(value: Any, shelve: Callable[[torch.Tensor], ShelvedTensor]) -> Any:
    """Return a copy of a value in which each tensor, in dicts, lists and tuples at any depth, is
    replaced by what ``shelve`` returns for it; everything else is deep-copied."""
    if torch.is_tensor(value):
        return shelve(value)
    if type(value) is dict:
        return {key: map_tensors(inner, shelve) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_tensors(inner, shelve) for inner in value)
    return copy.deepcopy(value)


def recall_tensors(value: Any) -> Any:
    """Return a deep copy of what `map_tensors` returned, with copies of the tensors in place of the
    `ShelvedTensor` objects."""
    if isinstance(value, ShelvedTensor):
        return value.recall().clone()
    if type(value) is dict:
        return {key: recall_tensors(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(recall_tensors, value))
    return copy.deepcopy(value)


@keep_former_members
class Recorder(Base):
    """PyTorch implementation of `dualml.parity.models.recorder.Recorder`.

    Gradients are those of ``.grad`` when the optimizer's step begins, or at the end of the block
    if no optimizer was given; only the loss must be passed to `saw`.

    Example:
        >>> import tempfile
        >>> model = torch.nn.Linear(3, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> recorder = Recorder(model, tempfile.mkdtemp(), optimizer)
        >>> x = torch.ones(2, 3)
        >>> with recorder.step(x):
        ...     loss = model(x).mean()
        ...     loss.backward()
        ...     recorder.saw(loss=loss)
        ...     optimizer.step()
        >>> recorder.trace.names("update", 1)
        ['weight', 'bias']
    """

    framework = "torch"
    skip = SKIP

    def check(self, model: Any) -> None:
        """Raise UserError unless ``model`` is a `torch.nn.Module`."""
        if not isinstance(model, torch.nn.Module):
            raise UserError(f"expected a torch.nn.Module; received {type(model).__name__}")

    def environment(self) -> dict[str, str]:
        """Return versions, number of threads and the device of the first parameter; ``cpu`` without
        one."""
        first = next(iter(self.model.parameters()), torch.empty(0))
        return environment(str(first.device), torch.get_num_threads())

    def named_tensors(self) -> dict[str, torch.Tensor]:
        """Return the model's own parameters, then its buffers, by name."""
        return dict(self.model.named_parameters()) | dict(self.model.named_buffers())

    def tensors(self) -> list[Tensor]:
        """Return name, shape and whether it is trained of every parameter, then of every buffer,
        which never is."""
        return [
            Tensor(name, tuple(local_part(t).shape), is_trained(t))
            for name, t in self.named_tensors().items()
        ]

    def stored_names(self) -> dict[str, list[str]]:
        """Return name → keys of the state dict that hold the tensor: several for a tied parameter,
        none for a buffer that is not persistent."""
        names = {id(tensor): name for name, tensor in self.named_tensors().items()}
        stored: dict[str, list[str]] = {name: [] for name in names.values()}
        for key, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) in names:
                stored[names[id(tensor)]].append(key)
        return stored

    def modules(self) -> dict[str, str]:
        """Return dotted name → class name of every submodule, without the model itself."""
        return {name: type(m).__name__ for name, m in self.model.named_modules() if name}

    def weights(self) -> Arrays:
        """Return host copies of all parameters and buffers by name."""
        return {name: self.array(t) for name, t in self.named_tensors().items()}

    @torch.no_grad()
    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy these arrays into the parameters and buffers of the same names in place; those not
        named stay as they are, and an unknown name raises KeyError."""
        named = self.named_tensors()
        for name, value in weights.items():
            own = value if value.flags.writeable and value.flags.c_contiguous else np.array(value)
            named[name].copy_(self.tensor_like(own, named[name]))

    def gradients(self) -> Arrays:
        """Return host copies of the trainable parameters' ``.grad``, zeros for None; empty if all
        are None."""
        return {
            name: self.array(g) if torch.is_tensor(g) else g
            for name, g in self.current_gradients().items()
        }

    def current_gradients(self) -> Mapping[str, Any]:
        """Return the trainable parameters' ``.grad`` by name, zeros for None; empty if all are
        None."""
        return self.gradients_by_name([p.grad for p in self.trainable_parameters().values()])

    def trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters with ``requires_grad`` by name, in the model's order; a shared one
        once."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def gradients_by_name(self, gradients: Any) -> Mapping[str, Any]:
        """Return name → gradient, given as a mapping or as a sequence with one entry (or None) per
        trainable parameter in order; None becomes zeros. Empty if all are None; ValueError for a
        sequence of another length."""
        trained = self.trainable_parameters()
        if not isinstance(gradients, Mapping):
            gradients = dict(zip(trained, gradients, strict=True))
        if all(g is None for g in gradients.values()):
            return {}
        return {  # None: the loss does not depend on it; MindSpore gives zero
            name: make_zeros(trained[name]) if g is None else g for name, g in gradients.items()
        }

    def learning_rates(self) -> list[float]:
        """Return the learning rate of each parameter group; empty if an optimizer has none."""
        groups = getattr(self.optimizer, "param_groups", ())
        with torch._C.DisableTorchFunction():  # a rate may be a tensor
            return [float(group["lr"]) for group in groups if "lr" in group]

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the model's parameters that the optimizer has, grouped by equal settings (learning
        rate, weight decay, …); empty if it has none of them."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        rows = []
        with torch._C.DisableTorchFunction():  # a rate may be a tensor
            for group in getattr(self.optimizer, "param_groups", ()):
                plain = {k: float(v) if is_scalar(v) else v for k, v in group.items()}
                own = [names[id(p)] for p in group["params"] if id(p) in names]
                rows += [(name, plain_settings(plain)) for name in own]
        return join_groups(rows)

    def count_updates(self) -> int:
        """Return the largest ``step`` in the optimizer's state, the number of updates it made; 0 if
        it has none."""
        state = getattr(unwrap_optimizer(self.optimizer), "state", None)
        entries = state.values() if isinstance(state, Mapping) else ()
        with torch._C.DisableTorchFunction():
            counts = [one["step"] for one in entries if isinstance(one, dict) and "step" in one]
            return int(max(map(float, counts), default=0))

    def unwrap_model(self, model: Any) -> Any:
        """Return the module inside of `DistributedDataParallel`; any other module itself."""
        return unwrap_model(model)

    def join_group(self, group: Any) -> GroupAccess:
        """Return access to a process group or device mesh, or with True to all ranks; raise
        UserError if no group was initialised or this process is not in it."""
        return join_group(group)

    def shard_place(self, tensor: Any) -> ShardPlace | None:
        """Return the place of this rank's part in a `DTensor`; None for any other tensor."""
        return shard_place(tensor)

    def optimizer_state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return state tensors of a parameter's shape: slot → parameter name → tensor; ``step``
        counts are left out."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        slots: dict[str, dict[str, torch.Tensor]] = {}
        for p, state in unwrap_optimizer(self.optimizer).state.items():
            for slot, value in state.items():
                if torch.is_tensor(value) and value.shape == p.shape and id(p) in names:
                    if slot == "step":  # a count; the parameter is a scalar
                        continue
                    slots.setdefault(slot, {})[names[id(p)]] = value
        return slots

    def snapshot(self) -> Any:
        """Return copies of weights, buffers, gradients, and, if there is an optimizer, of its state
        dict and own attributes, as an opaque value for `restore` and `adopt_changes`."""
        gradients = {
            n: None if p.grad is None else self.shelve(p.grad)
            for n, p in self.trainable_parameters().items()
        }
        weights = {name: self.shelve(t, name) for name, t in self.named_tensors().items()}
        state = None
        if self.optimizer is not None:
            state = map_tensors(unwrap_optimizer(self.optimizer).state_dict(), self.shelve)
        own = (
            []
            if self.optimizer is None
            else capture_attributes(self.optimizer, copy_tensor, is_saved_elsewhere)
        )
        return weights, gradients, state, own

    @torch.no_grad()
    def restore(self, kept: Any) -> None:
        """Restore weights, buffers, gradients and optimizer in place from a `snapshot`; gradients
        of parameters that were not trainable then become None."""
        weights, gradients, state, own = kept
        for name, t in self.named_tensors().items():
            if name in weights:  # a buffer may have been made since
                t.copy_(weights[name].recall())
        for name, p in self.model.named_parameters():
            p.grad = None  # before its copy is made
            if (shelved := gradients.get(name)) is not None:
                p.grad = shelved.recall().clone()
        if state is not None:
            optimizer = unwrap_optimizer(self.optimizer)
            if isinstance(optimizer.state, MutableMapping):
                optimizer.state.clear()  # never two states of a large model at once
            optimizer.load_state_dict(recall_tensors(state))
        restore_attributes(own, copy_tensor)

    @torch.no_grad()
    def adopt_changes(self, start: Any, end: Any) -> None:
        """Assign, in place, the weights and buffers that differ between the snapshots ``start`` and
        ``end``; set the values in the optimizer's parameter groups, and its own numbers, texts and
        flags, to those in ``end``."""
        (old, _, _, _), (new, _, state, own) = start, end
        for name, t in self.named_tensors().items():
            value = new[name].recall()
            if not torch.equal(local_part(old[name].recall()), local_part(value)):
                t.copy_(value)
        groups = [] if state is None else state["param_groups"]
        for group, given in zip(self.optimizer.param_groups if groups else [], groups, strict=True):
            settings = {key: value for key, value in given.items() if key != "params"}
            group.update(recall_tensors(settings))
        restore_attributes(plain_entries(own), copy_tensor)

    def copy_tensor(self, value: Any) -> torch.Tensor | None:
        """Return a detached copy of a tensor; None for any other value."""
        return copy_tensor(value)

    def is_saved(self, value: Any) -> bool:
        """Return whether a value needs no copy of its own: a parameter or module, which is saved
        with the state dict, or a type or a Python module, which no step changes."""
        return is_saved_elsewhere(value)

    def capture_tensors(self, value: Any) -> Callable[[], None] | None:
        """Return a function that restores the present numbers of ``value``: the counters of a
        module, and its tensors, or a tensor (of at most `MAX_ELEMENTS`), outside of the recorded
        model; None for any other value."""
        counters: list[SavedValue] = []
        if isinstance(value, torch.nn.Module):
            tensors = [*value.parameters(), *value.buffers()]
            counters = capture_numbers(value.modules())
        elif torch.is_tensor(value) and value.numel() <= MAX_ELEMENTS:
            tensors = [value]
        else:
            return None
        known = {id(t) for t in self.named_tensors().values()}
        tensors = [t for t in tensors if id(t) not in known]
        if not tensors and not counters:
            return None
        copies = [(t, self.shelve(t)) for t in tensors]

        @torch.no_grad()
        def restore_model() -> None:
            for t, shelved in copies:
                t.copy_(shelved.recall())
            restore_attributes(counters, copy_tensor)

        return restore_model

    def is_tensor(self, value: Any) -> bool:
        """Return whether ``value`` is a `torch.Tensor`."""
        return torch.is_tensor(value)

    def view(self, tensor: torch.Tensor) -> NDArray[Any]:
        """Return a tensor as an array, which shares its memory where it can; bfloat16 becomes
        float32, complex numbers become pairs along a new last axis."""
        with torch._C.DisableTorchFunction():  # this is no operation of the model
            tensor = local_part(tensor).cpu()
            if tensor.dtype == torch.bfloat16:
                tensor = tensor.float()
            if tensor.is_complex():  # pairs of real numbers, as in ports without complex types
                tensor = torch.view_as_real(tensor.resolve_conj())
            return tensor.resolve_neg().numpy()

    def shared_view(self, tensor: torch.Tensor) -> NDArray[np.float32] | None:
        """Return a contiguous float32 tensor on the CPU as an array that shares its memory; None
        for any other one."""
        with torch._C.DisableTorchFunction():
            plain = local_part(tensor)
            fits = plain.device.type == "cpu" and plain.dtype == torch.float32
            return plain.numpy() if fits and plain.is_contiguous() and not plain.is_neg() else None

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a detached copy of a tensor."""
        return tensor.detach().clone()

    def sample(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor of the dtype and device of ``tensor``; a distributed one itself,
        because its shape and places are needed."""
        return tensor.detach() if shard_place(tensor) else tensor.detach().new_empty(0)

    def tensor_like(self, array: NDArray[Any], tensor: torch.Tensor) -> torch.Tensor:
        """Return ``array`` as a tensor of the dtype and device of ``tensor``; if that is complex,
        pairs along the last axis become complex numbers."""
        given = torch.from_numpy(array)
        if tensor.is_complex():
            given = torch.view_as_complex(given)
        return place_like(given.to(tensor.device, tensor.dtype), tensor)

    def make_tape(self) -> Tape:
        """Return an empty `Tape`, a record of the operations of one step, that knows the names of
        the model's modules and, as ``parameter:NAME``, its parameters and buffers."""
        tape = Tape(
            self.array, self.skip, {id(one): name for name, one in self.model.named_modules()}
        )
        for name, one in self.named_tensors().items():
            fixed = one.requires_grad  # a forward pass may change a buffer
            tape.register(one, f"parameter:{name}", is_fixed=fixed)
        return tape

    def make_tracer(self) -> OperationTracer | None:
        """Make the tracer that records every operation in `tape`; None if there is no tape."""
        if self.tape is None:
            return None
        return OperationTracer(self.tape, keeps_attention=self.keeps_attention)

    @contextlib.contextmanager
    def watch_operations(self) -> Iterator[None]:
        """Inside the block, trace operations if there is a tape and the model is not compiled, and
        move results by rounding if the recorder has a `rounding`. Replace PyTorch's random numbers
        by those that dualml draws from the recorder's seed for both frameworks, or, if `seeded`,
        seed PyTorch's own generator with it."""
        self.chance = SharedRng(self.seed)
        with contextlib.ExitStack() as stack:
            if not self.compiled and (watch := self.make_tracer()) is not None:
                stack.enter_context(watch)
            if self.rounding is not None:
                rng, units = self.rounding
                units = UNITS.get(self.precision, units)
                stack.enter_context(RoundingMode(rng, units, lambda: self.output_seen))
            if self.seeded:
                torch.manual_seed(self.seed)
            else:
                stack.enter_context(SharedRngMode(self.chance, self.keeps_attention))
            yield

    @contextlib.contextmanager
    def hook_modules(self, tell: Callable[[str, Any], None]) -> Iterator[None]:
        """Inside the block, call ``tell(name, output)`` after the forward pass of the model, whose
        name is empty, and of each module in it, and record the gradients before the optimizer's
        step. Of a compiled model, and of one that torch.jit has compiled, only its own output is
        recorded."""

        def hook(name: str) -> Callable[..., None]:
            return lambda module, given, output: tell(name, output)

        modules = [("", self.model)] if self.compiled else list(self.model.named_modules())
        # By the class: modules of torch.jit.script refuse the method, but call the hook.
        add = torch.nn.Module.register_forward_hook
        handles: list[Any] = [add(module, hook(name)) for name, module in modules]
        if isinstance(self.optimizer, torch.optim.Optimizer):
            handles.append(self.optimizer.register_step_pre_hook(self.before_update))
        if self.passes.watches and not self.compiled:
            handles.append(LocalGradients(self.model, self.note_pass))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def before_update(self, optimizer: Any, given: Sequence[Any], named: Any) -> None:
        """Record the gradients, unless this step's are recorded already; a hook that PyTorch calls
        with an ``optimizer`` whose step begins, and with the step's arguments ``given`` and
        ``named``. Arguments are ignored."""
        # A step that calls its parent's triggers the hook twice, perhaps with changed gradients.
        if self.step_arrays is not None and not self.step_arrays.has_phase("gradient"):
            self.note_gradients(self.current_gradients())
