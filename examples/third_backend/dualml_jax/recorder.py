"""Recording of a JAX model's outputs, gradients, updates and optimizer state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dualml
from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import UserError
from dualml.parity.models.operations import Tape
from dualml.parity.models.partners import Tensor
from dualml.parity.models.recorder import Recorder as Base
from dualml_jax.optim import update

#: Lines of these packages are not the user's.
SKIP = tuple(
    os.path.join(os.path.dirname(str(file)), "")
    for file in (jax.__file__, dualml.__file__, __file__)
)


def is_array(value: Any) -> bool:
    """Return whether a value is a JAX array, or stands for one while JAX traces a function."""
    return isinstance(value, jax.Array)


def is_model(value: Any) -> bool:
    """Return whether a value is callable and has ``parameters``, a tree of float arrays."""
    leaves = jax.tree_util.tree_leaves(getattr(value, "parameters", None))
    return (
        callable(value)
        and bool(leaves)
        and all(hasattr(one, "dtype") and jnp.issubdtype(one.dtype, jnp.floating) for one in leaves)
    )


def name_leaves(tree: Any) -> dict[str, Any]:
    """Return the arrays of a tree by the dotted names of their places: ``blocks.0.weight``."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(map(name_key, path)): one for path, one in leaves}


def name_key(key: Any) -> str:
    """Return the name of one step of a path in a tree: a dict's key, a position, an attribute."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


class RuleOptimizer:
    """An update rule with its state, applied to a model's parameters.

    Attributes:
        slots: name of a state → name of a parameter → array.
        steps: number of updates made.
    """

    def __init__(self, rule: OptimizerSpec, model: Any) -> None:
        self.rule, self.model, self.steps = rule, model, 0
        start = {name: np.asarray(one) for name, one in name_leaves(model.parameters).items()}
        self.slots = {
            slot: {name: jnp.asarray(one) for name, one in named.items()}
            for slot, named in rule.init(start).items()
        }

    def step(self, gradients: Mapping[str, Any]) -> None:
        """Make one update of all parameters."""
        self.steps += 1
        named = name_leaves(self.model.parameters)
        update(self.rule, named, self.slots, gradients, self.steps, self.rule.lr)
        set_leaves(self.model, named)


def set_leaves(model: Any, named: Mapping[str, Any]) -> None:
    """Give a model these arrays, all of them by name, in place of its parameters."""
    structure = jax.tree_util.tree_structure(model.parameters)
    order = name_leaves(model.parameters)
    model.parameters = jax.tree_util.tree_unflatten(structure, [named[name] for name in order])


class Recorder(Base):
    """JAX implementation of `dualml.parity.models.recorder.Recorder`.

    The step reports outputs and gradients, because JAX calls no hooks.
    """

    framework = "jax"
    skip = SKIP
    tell: Callable[[str, Any], None] | None = None

    def check(self, model: Any) -> None:
        """Raise `UserError` unless the model is callable and has ``parameters``."""
        if not is_model(model):
            raise UserError(
                "expected an object that is called as model(parameters, *inputs) and has "
                f"``parameters``, a tree of float arrays; received {type(model).__name__}"
            )
        # NumPy's arrays could be changed in place.
        model.parameters = jax.tree_util.tree_map(jnp.asarray, model.parameters)

    def environment(self) -> dict[str, str]:
        """Return the versions and the device."""
        return {"jax": jax.__version__, "numpy": np.__version__, "device": "cpu"}

    def named_tensors(self) -> dict[str, Any]:
        """Return the model's parameters by their dotted names."""
        return name_leaves(self.model.parameters)

    def tensors(self) -> list[Tensor]:
        """Return name and shape of every parameter; all are trained."""
        return [Tensor(name, tuple(one.shape), True) for name, one in self.named_tensors().items()]

    def modules(self) -> dict[str, str]:
        """Return an empty dict: a function has no modules."""
        return {}

    def weights(self) -> dict[str, np.ndarray]:
        """Return host copies of all parameters by name."""
        return {name: self.array(one) for name, one in self.named_tensors().items()}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Set parameters by name; those not named stay as they are, and an unknown name raises
        KeyError."""
        named = self.named_tensors()
        for name, value in weights.items():
            named[name] = self.tensor_like(np.array(value), named[name])
        set_leaves(self.model, named)

    def gradients_by_name(self, gradients: Any) -> Mapping[str, Any]:
        """Return gradients by name, given so or as a tree like the parameters."""
        names = self.named_tensors().keys()
        named = gradients if isinstance(gradients, Mapping) else {}
        named = named if named.keys() == names else name_leaves(gradients)
        if named.keys() != names:
            raise UserError(f"saw(gradients=…): {len(names)} parameters, {len(named)} gradients")
        return named

    def optimizer_state(self) -> Mapping[str, Mapping[str, Any]]:
        """Return state → name of a parameter → array."""
        return self.optimizer.slots

    def snapshot(self) -> Any:
        """Return the parameters and the optimizer's state, which no step changes in place."""
        own = self.optimizer
        state = own and ({slot: dict(named) for slot, named in own.slots.items()}, own.steps)
        return self.model.parameters, state

    def restore(self, kept: Any) -> None:
        """Restore what `snapshot` returned."""
        self.model.parameters, state = kept
        if state is not None:
            slots, self.optimizer.steps = state
            self.optimizer.slots = {slot: dict(named) for slot, named in slots.items()}

    def adopt_changes(self, start: Any, end: Any) -> None:
        """Take over the parameters that a script changed between the snapshots ``start`` and
        ``end``."""
        old, new, named = name_leaves(start[0]), name_leaves(end[0]), self.named_tensors()
        changed = {n: one for n, one in new.items() if not np.array_equal(old[n], one)}
        set_leaves(self.model, named | changed)

    def copy_tensor(self, value: Any) -> Any:
        """Return an array itself, which nothing changes; None for any other value."""
        return value if is_array(value) else None

    def is_saved(self, value: Any) -> bool:
        """Return whether a value is a model, whose parameters are put back by themselves."""
        return is_model(value)

    def capture_tensors(self, value: Any) -> Callable[[], None] | None:
        """Return a function that puts the parameters of another model back; for an array one that
        has nothing to do; None for any other value."""
        if is_array(value):
            return lambda: None
        if not is_model(value) or value is self.model:
            return None
        parameters = value.parameters
        return lambda: setattr(value, "parameters", parameters)

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a JAX array."""
        return is_array(value)

    def view(self, tensor: Any) -> np.ndarray:
        """Return an array on the host; bfloat16 becomes float32."""
        return np.asarray(tensor.astype(jnp.float32) if tensor.dtype == jnp.bfloat16 else tensor)

    def duplicate(self, tensor: Any) -> Any:
        """Return the array itself: nothing changes it."""
        return tensor

    def sample(self, tensor: Any) -> Any:
        """Return an empty array of the same dtype."""
        return jnp.zeros(0, tensor.dtype)

    def tensor_like(self, array: np.ndarray, tensor: Any) -> Any:
        """Return an array on the device with the dtype of another one."""
        return jnp.asarray(array, tensor.dtype)

    def make_tape(self) -> Tape:
        """Return an empty tape: the calls inside of a function are not recorded."""
        return Tape(self.array, self.skip)

    @contextlib.contextmanager
    def hook_modules(self, tell: Callable[[str, Any], None]) -> Iterator[None]:
        """Pass what `report_outputs` gets to ``tell`` inside the block."""
        self.tell = tell
        try:
            yield
        finally:
            self.tell = None

    def report_outputs(self, outputs: Any) -> None:
        """Record the outputs of the whole model, if a step is recorded."""
        if self.tell is not None:
            self.tell("", outputs)
