"""Access to a framework's model that a recorder needs: list, hook, copy and restore its tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.parity.models.operations import Tape
from dualml.parity.models.optimizer_facts import ParameterGroup
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Arrays
from dualml.parity.ranks.member import GroupAccess
from dualml.parity.ranks.shards import ShardPlace


class ModelAccess:
    """Access of a recorder to a model. Each framework overrides the methods; here most of them
    raise `NotImplementedError`, and the others have a default.

    Attributes:
        framework: name of the framework, as in a trace.
        skip: folders of packages whose lines are not the user's.
    """

    framework: ClassVar[str]
    skip: ClassVar[tuple[str, ...]] = ()

    def check(self, model: Any) -> None:
        """Check whether the model can be recorded.

        Raises:
            UserError: not a model of this framework, or in a mode that cannot be watched.
        """

    def environment(self) -> dict[str, str]:
        """Return the environment of the model as strings by name: versions, device, number of
        threads."""
        raise NotImplementedError

    def named_tensors(self) -> dict[str, Any]:
        """Return name → the framework's tensor of all parameters, then all buffers; a tensor that
        has two names appears once."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        """Return a `Tensor` (name, shape, …, see `dualml.parity.models.trace`) for each parameter
        and buffer, in the framework's order."""
        raise NotImplementedError

    def stored_names(self) -> dict[str, list[str]]:
        """Return name → names under which a checkpoint of the framework stores the tensor: several
        where modules share it, none for a buffer that is not stored."""
        return {name: [name] for name in self.named_tensors()}

    def modules(self) -> dict[str, str]:
        """Return name → name of the type of every submodule, without the model itself."""
        raise NotImplementedError

    def weights(self) -> Arrays:
        """Return copies of all parameters and buffers on the host, by name, each of its tensor's
        shape."""
        raise NotImplementedError

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy these values, by name, into the model's parameters and buffers, in place; each has
        its tensor's shape. Tensors that are not named stay as they are."""
        raise NotImplementedError

    def gradients(self) -> Arrays:
        """Return the parameters' gradients by name, of the parameters' shapes; empty if the
        framework keeps none."""
        return {}

    def current_gradients(self) -> Mapping[str, Any]:
        """Return the parameters' gradients by name without copying them, as tensors or arrays;
        empty if the framework keeps none."""
        return {}

    def gradients_by_name(self, gradients: Any) -> Mapping[str, Any]:
        """Return the gradients that the script passed to `Recorder.saw`, by the name of their
        parameter, not copied.

        Raises:
            UserError: not one for each trained parameter.
        """
        raise NotImplementedError

    def optimizer_state(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the optimizer's state: slot (kind of state, such as a momentum) → parameter name →
        tensor or array, of the parameter's shape."""
        raise NotImplementedError

    def learning_rates(self) -> list[float]:
        """Return the optimizer's learning rate of each group of parameters; empty if it does not
        say."""
        return []

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the optimizer's groups of parameters with their settings; empty if it does not
        say."""
        return []

    def count_updates(self) -> int:
        """Return how many updates the optimizer has made; 0 if it does not count them."""
        return 0

    def unwrap_model(self, model: Any) -> Any:
        """Return the model inside of a wrapper that trains it on several ranks; any other model
        itself."""
        return model

    def join_group(self, group: Any) -> GroupAccess:
        """Return access to a group of ranks; this base class always raises.

        Args:
            group: the group as the framework names it, or True for all ranks.

        Raises:
            UserError: no such group, this process is not in it, or the framework has no groups.
        """
        raise UserError(f"a Recorder of {self.framework} does not know groups of ranks")

    def shard_place(self, tensor: Any) -> ShardPlace | None:
        """Return the place of this rank's part in the whole tensor; None if it is the whole one."""
        return None

    def snapshot(self) -> Any:
        """Return a copy of all that a step changes: weights, buffers and optimizer. Tensors are
        copied by `Recorder.shelve`, which may keep them on the disk."""
        raise NotImplementedError

    def restore(self, kept: Any) -> None:
        """Restore weights, buffers and optimizer from what `snapshot` returned, as often as
        wanted."""
        raise NotImplementedError

    def adopt_changes(self, start: Any, end: Any) -> None:
        """Apply to model and optimizer what a script changed between two snapshots, such as a
        learning rate or a clipped weight.

        Args:
            start: the earlier snapshot.
            end: the later one.
        """
        raise NotImplementedError

    def copy_tensor(self, value: Any) -> Any:
        """Return a copy of a tensor; None for any other value."""
        raise NotImplementedError

    def is_saved(self, value: Any) -> bool:
        """Return whether a value need not be copied on its own: `snapshot` saves it with the
        model's tensors, or no step changes it (a parameter, a module, a type)."""
        raise NotImplementedError

    def capture_tensors(self, value: Any) -> Callable[[], None] | None:
        """Return a function that restores the present numbers of ``value`` in place: of a tensor
        that does not belong to the recorded model, or of all tensors of another model.

        None for any other value, for the recorded model and its parts, and for a tensor so large
        that it must be data.
        """
        raise NotImplementedError

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor of the framework."""
        raise NotImplementedError

    def array(self, tensor: Any) -> NDArray[Any]:
        """Return a copy of a tensor on the host, with the shape and dtype of `view`."""
        return self.view(tensor).copy()

    def view(self, tensor: Any) -> NDArray[Any]:
        """Return a tensor's numbers on the host: of a distributed tensor this rank's part, without
        communication, bfloat16 as float32, with PyTorch complex numbers as pairs along a new last
        axis. The array may share the tensor's memory: it is valid only until the tensor
        changes."""
        raise NotImplementedError

    def shared_view(self, tensor: Any) -> NDArray[np.float32] | None:
        """Return a float32 tensor as a contiguous array, of the same shape, through which it can be
        changed; None for a tensor of another type, or if its memory cannot be shared."""
        return None

    def duplicate(self, tensor: Any) -> Any:
        """Return a copy of a tensor, as a tensor of the framework on the same device."""
        raise NotImplementedError

    def sample(self, tensor: Any) -> Any:
        """Return a tensor with the dtype and device of ``tensor``, as second argument of
        `tensor_like`: a small one, except for a distributed tensor, which is returned itself."""
        raise NotImplementedError

    def tensor_like(self, array: NDArray[Any], tensor: Any) -> Any:
        """Return a tensor with the values of ``array``, as `view` gives them, and the dtype and
        device of ``tensor``; if that is distributed, ``array`` is this rank's part."""
        raise NotImplementedError

    def hook_modules(
        self, tell: Callable[[str, Any], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Report every module's output within the context.

        Args:
            tell: called after each call of a module with its name (``""`` for the model itself) and
                its output.
        """
        raise NotImplementedError

    def make_tape(self) -> Tape:
        """Return an empty `Tape` (list of a pass's operations) that knows this model's parameters
        and modules."""
        raise NotImplementedError

    def watch_operations(self) -> contextlib.AbstractContextManager[Any]:
        """Within the context, draw random numbers from the generator that both frameworks share,
        and report every operation to the recorder's ``tape``. Does nothing unless a framework
        overrides it."""
        return contextlib.nullcontext()
